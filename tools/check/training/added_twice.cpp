/// @file added_twice.cpp
/// added-twice: a gradient counts twice.
///
/// First case: the backward of a custom op adds a gradient to a leaf, and also returns it, so that
/// autograd adds it, too. Judged: the records `grad_before:I` and `grad_after:I`, which exist only
/// where a backward writes the gradient of a leaf and returns one for it. The added gradient equals
/// the returned one, by their sketches, or by their sums for small tensors, in at least two calls
/// and in all calls of the op with that leaf. Silent: a backward that adds a part and returns the
/// rest; the first such call, which is not recorded.
///
/// Second case: two backward passes go through one loss. Judged: the gradient of one call's output
/// occurs twice in a step, bit by bit, and the bias's gradient contains it twice, so that it was
/// not cleared in between. In two steps, in runs of one rank without a loss scale.

#include <array>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tools/check/model/checks.h"
#include "tools/check/training/bias_gradients.h"
#include "tools/common/text.h"
#include "tools/trace/model/distance.h"

namespace convtrace::check {
namespace {

constexpr double kRoundings = 4;  ///< in units of the roundoff of the leaf's gradient
constexpr double kDistinct = 16;  ///< multiple of the possible rounding
constexpr unsigned kLeastCalls = 2, kLeastPasses = 2;

using Sums = std::array<double, format::Sketch::kBuckets>;

/// Sums that add up when tensors do.
Sums sums_of(const Value& value, bool sketched) {
  Sums sums{};
  if (!sketched) sums[0] = value.stats.sum.as_f64();
  for (size_t i = 0; sketched && i < sums.size(); ++i)
    sums[i] = std::ldexp(double{value.stats.sketch.bucket[i]}, value.stats.sketch.exponent);
  return sums;
}

double length(const Sums& sums) {
  double squares = 0;
  for (const double sum : sums) squares += sum * sum;
  return std::sqrt(squares);
}

class AddedTwice : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const Value& value : step.values) {
      if (value.role != Role::kGradientBefore && value.role != Role::kGradientAfter &&
          value.role != Role::kGradInput)
        continue;
      Leaf& leaf = leaves_[{value.place.scope, value.op, value.name}];
      if (value.role == Role::kGradientBefore) leaf.before = &value, leaf.after = nullptr;
      if (value.role == Role::kGradientAfter) leaf.after = &value;
      if (value.role == Role::kGradInput && leaf.after != nullptr) {
        look("added-twice");
        judge(step, around, leaf, value);
        leaf.before = leaf.after = nullptr;
      }
    }
    for (auto& [key, leaf] : leaves_) leaf.before = leaf.after = nullptr;
    for (const Value& value : step.values) scaled_ |= value.role == Role::kLossScale;
    if (scaled_ || !around.alone) return;
    for_each_bias(step, around,
                  [&](const Parameter& parameter, const Value& gradient,
                      const std::vector<const Value*>& outputs) {
                    if (!told_) look_for_passes(step, around, parameter, gradient, outputs);
                  });
  }

 private:
  struct Leaf {
    const Value *before = nullptr, *after = nullptr;  ///< the records of the current call
    unsigned equal = 0;
    bool other = false;  ///< some call has added something else
  };

  void judge(const StepValues& step, const Surroundings& around, Leaf& leaf, const Value& given) {
    const Value *const before = leaf.before, &after = *leaf.after;
    const auto tells = [&given](const Value& value) {
      return value.finite() && value.stats.count == given.stats.count;
    };
    if (!tells(after) || !tells(given) || (before != nullptr && !tells(*before))) return;
    const auto knows = [](const Value& value) { return value.stats.sketch.is_known(); };
    const bool sketched = knows(after) && knows(given) && (before == nullptr || knows(*before));
    Sums rest = sums_of(after, sketched);
    const Sums of_before = before != nullptr ? sums_of(*before, sketched) : Sums{},
               returned = sums_of(given, sketched);
    for (size_t i = 0; i < rest.size(); ++i) rest[i] -= of_before[i] + returned[i];
    const double rounding = kRoundings * diff::unit_roundoff(after.dtype) *
                            (sketched ? after.stats.l2 : after.stats.l1.as_f64());
    if (length(returned) < kDistinct * rounding) return;
    if (length(rest) > rounding) leaf.other = true;
    if (leaf.other || ++leaf.equal != kLeastCalls) return;
    Finding finding = about("added-twice", Severity::kError, around, step.number, given);
    const std::string op(around.names.text(given.op));
    finding.text = op + " adds to the gradient of " + name_of(step, around, after) +
                   " itself and returns one for it as well: it counts twice.";
    finding.evidence = {
        "the gradient before the op: " + (before != nullptr ? numbers_of(*before) : "none"),
        "behind it: " + numbers_of(after) + "; what was added is what it returned, " +
            numbers_of(given)};
    finding.cause = "a backward that accumulates into .grad returns None for that input";
    finding.next = "return None for it in the backward of " + op;
    report(std::move(finding));
  }

  /// @return the parameter whose gradient lies where `gradient` does.
  static std::string name_of(const StepValues& step, const Surroundings& around,
                             const Value& gradient) {
    for (const auto& [parameter, seen] : step.parameters) {
      if (seen.gradient != nullptr && seen.gradient->address == gradient.address)
        return parameter_name(around.names, parameter);
    }
    return "a leaf";
  }

  void look_for_passes(const StepValues& step, const Surroundings& around,
                       const Parameter& parameter, const Value& gradient,
                       const std::vector<const Value*>& outputs) {
    std::map<std::tuple<format::StringId, uint32_t, uint64_t>, unsigned> passes;
    double all = 0, size = 0, again = 0;
    const Value* repeated = nullptr;
    for (const Value* output : outputs) {
      if (!output->finite()) return;
      all += output->stats.sum.as_f64();
      size += output->stats.l1.as_f64();
      if (passes[{output->slot, output->place.call, output->stats.hash}]++ == 0) continue;
      again += output->stats.sum.as_f64();
      repeated = output;
    }
    const double allowed = kSameSums * size;
    if (repeated == nullptr || std::abs(again) <= 10 * allowed ||
        std::abs(gradient.stats.sum.as_f64() - all) > allowed ||
        ++passes_[parameter] < kLeastPasses)
      return;
    told_ = true;
    Finding finding = about("added-twice", Severity::kWarning, around, step.number, gradient);
    finding.text = "The gradient of " + parameter_name(around.names, parameter) +
                   " contains that of one call's output twice.";
    finding.evidence = {
        "the output's gradient came twice in this step with equal bits: " + numbers_of(*repeated),
        "sum of the parameter's gradient: " + tools::number_text(gradient.stats.sum.as_f64()) +
            "; of the output's gradients with both: " + tools::number_text(all)};
    finding.cause = "two backward passes go through one loss (retain_graph=True)";
    finding.next = "call backward once on the sum of the losses, or clear the gradients in between";
    report(std::move(finding));
  }

  struct Key {
    format::StringId scope, op, name;
    auto operator<=>(const Key&) const = default;
  };
  std::map<Key, Leaf> leaves_;
  std::map<Parameter, unsigned> passes_;  ///< steps in which an output's gradient counted twice
  bool scaled_ = false, told_ = false;
};

}  // namespace

std::unique_ptr<Check> make_added_twice() { return std::make_unique<AddedTwice>(); }

}  // namespace convtrace::check

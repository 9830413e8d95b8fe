/// @file kept_sum.cpp
/// gradients-add-up: the result of a custom op's backward is a sum over its calls, kept in a buffer
/// that should have been cleared.
///
/// Why it is a fault: from call to call the sum of the result's elements grows by the sum of the
/// given gradients' elements, times one factor. This growth is the correct result of the call.
/// It holds for results that are linear in the given gradients with equal weights: a bias, a lookup
/// table, or gradients that are passed on, scaled, gathered or averaged.
/// Judged: five consecutive results, of one module or of all, whose sums grow so. The first two
/// give the factor, and three must have it.
/// Silent: results that are the factor times the given gradient itself, or a constant multiple of
/// it (a loss that falls by a constant factor); given gradients of equal sums; types of 16 bits and
/// less, whose rounding hides it; an average, which forgets; an op that returns its sum once for
/// each group of calls.
/// Not told: sums of products (weights of a linear layer), and of outputs, as an integrator keeps
/// them.

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tools/check/model/checks.h"
#include "tools/common/text.h"
#include "tools/trace/model/distance.h"

namespace convtrace::check {
namespace {

constexpr double kRoundings = 64;  ///< in units of the terms' roundoff
constexpr double kClear = 10;      ///< multiple of the possible rounding
constexpr double kUnlike = 0.01;   ///< least relative difference of unlike ratios
constexpr unsigned kLeastGrown = 3;

/// The sum of the elements of one or more tensors, and of their sizes.
struct Sum {
  double sum = 0, size = 0;
};

Sum sum_of(const Value& value) { return {value.stats.sum.as_f64(), value.stats.l1.as_f64()}; }

bool unlike(double a, double b) { return std::abs(a - b) > kUnlike * std::abs(a); }

/// The results of an op's calls, one after the other.
struct Results {
  Sum last{}, given{};
  uint32_t step = 0;
  double factor = 0;
  unsigned grown = 0;  ///< results running that have grown by it
};

class KeptSum : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    std::map<uint64_t, const Value*> measured;  // by hash: of what ops take no more is recorded
    for (const Value& value : step.values)
      if (value.place.phase == format::Phase::kBackward && value.finite())
        measured.emplace(value.stats.hash, &value);
    std::map<CallKey, std::vector<const Value*>> taken;
    for (const Value& value : step.values) {
      if (!value.op || value.kernel || value.place.phase != format::Phase::kBackward) continue;
      std::vector<const Value*>& of_call =
          taken[{value.place.scope, value.op, value.place.phase, value.place.call}];
      if (value.role == Role::kGradOutput) {
        const auto same = [&value](const Value* one) { return one->slot == value.slot; };
        if (std::ranges::any_of(of_call, same)) of_call.clear();  // the op's next call
        of_call.push_back(&value);
      }
      if (value.role != Role::kGradInput || !value.finite()) continue;
      const std::optional<Sum> given = given_to(of_call, measured);
      bool grew = false;
      for (const format::StringId scope : std::set{value.place.scope, format::StringId{}})
        grew |= follow(step, value, given, results_[{scope, value.op, value.slot}]);
      if (grew) tell(step, around, value, *given);
    }
  }

 private:
  static std::optional<Sum> given_to(const std::vector<const Value*>& taken,
                                     const std::map<uint64_t, const Value*>& measured) {
    Sum all;
    for (const Value* one : taken) {
      const auto known = measured.find(one->stats.hash);
      if (known == measured.end()) return std::nullopt;
      const Sum sum = sum_of(*known->second);
      all.sum += sum.sum;
      all.size += sum.size;
    }
    return taken.empty() ? std::nullopt : std::optional(all);
  }

  /// @return whether the result is one too many that has grown.
  bool follow(const StepValues& step, const Value& value, const std::optional<Sum>& given,
              Results& results) {
    if (!given || step.number > results.step + 1) results = {};
    if (!given) return false;
    const Results before =
        std::exchange(results, {.last = sum_of(value), .given = *given, .step = step.number});
    if (before.last.size == 0) return false;
    look("gradients-add-up");
    const double grown = results.last.sum - before.last.sum;
    results.factor = before.grown != 0 ? before.factor : grown / given->sum;
    const double own = results.factor * given->sum;
    const double allowed =
        kRoundings * diff::unit_roundoff(value.dtype) *
        (results.last.size + before.last.size + std::abs(results.factor) * given->size);
    const bool tells = std::isfinite(own) && std::abs(own) > kClear * allowed &&
                       std::abs(before.last.sum) > kClear * allowed &&
                       unlike(given->sum, before.given.sum) &&
                       unlike(results.last.sum / given->sum, before.last.sum / before.given.sum);
    if (tells && std::abs(grown - own) <= allowed) results.grown = before.grown + 1;
    return results.grown > kLeastGrown;
  }

  void tell(const StepValues& step, const Surroundings& around, const Value& value,
            const Sum& given) {
    if (!told_.insert({value.place.scope, value.op}).second) return;
    Finding finding = about("gradients-add-up", Severity::kWarning, around, step.number, value);
    const std::string slot(around.names.text(value.slot));
    finding.text = "What op " + std::string(around.names.text(value.op)) + " returns as " + slot +
                   " contains what it returned in its calls before.";
    finding.evidence = {"in " + std::to_string(kLeastGrown + 2) +
                            " calls running the sum of its elements grows by a constant times "
                            "that of the gradient that it was given; sum of its elements now: " +
                            tools::number_text(value.stats.sum.as_f64()),
                        "sum of the elements that it was given: " + tools::number_text(given.sum)};
    finding.cause = "a buffer that the backward adds to, and does not clear";
    finding.next = "clear it in each call, or write into it";
    report(std::move(finding));
  }

  std::map<std::tuple<format::StringId, format::StringId, format::StringId>, Results>
      results_;  ///< by scope, none for all of them, op and slot
  std::set<std::pair<format::StringId, format::StringId>> told_;  ///< scope and op
};

}  // namespace

std::unique_ptr<Check> make_kept_sum() { return std::make_unique<KeptSum>(); }

}  // namespace convtrace::check

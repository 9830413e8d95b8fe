/// @file births.cpp
/// nan: the first NaN or infinity of a run that reaches a loss, a gradient, a parameter or the output
/// of a root.
///
/// Why it is a fault: no such value of a training that works is one. Negative infinities of inputs
/// and outputs are not counted, since attention masks consist of them.
/// Lower levels: what goes no further (rows that are masked out and replaced behind) is a hint, a
/// positive infinity without a NaN that reaches only an output a warning: it may mask a minimum. NaN
/// in the data that stay there stand for missing values (hint), else they are the origin (warning);
/// infinite gradients under a GradScaler are how it finds its scale (hint).
/// Birth: the first such value of the step that no call around it ends: one whose outputs are finite.

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "tools/check/values/checks.h"
#include "tools/common/text.h"
#include "tools/diff/model/record.h"

namespace convtrace::check {
namespace {

using format::Phase;

bool is_of(const Value& value, std::initializer_list<Role> roles) {
  return std::ranges::find(roles, value.role) != roles.end();
}

bool bad(const Value& value) {
  if (!value.measured()) return false;
  const format::Stats& stats = value.stats;
  const bool no_mask = is_of(value, {Role::kGradOutput, Role::kGradient, Role::kUnclipped,
                                     Role::kGradientNorm, Role::kParameter, Role::kLoss}) &&
                       value.place.phase != Phase::kForward;
  return stats.nan != 0 || stats.pos_inf != 0 || (no_mask && stats.neg_inf != 0);
}

/// The call of a module as a stretch of the step's records.
struct Stretch {
  std::string_view scope;
  Phase phase = Phase::kForward;
  uint64_t begin = 0, end = 0;
  bool finite = true;  ///< all its outputs are known to be

  [[nodiscard]] bool contains(const Value& value, const format::Definitions& names) const {
    const std::string_view inner = names.text(value.place.scope);
    const bool below = scope.empty() || (inner.starts_with(scope) && inner[scope.size()] == '.') ||
                       (value.op && inner == scope);
    const bool itself = inner == scope && !value.op;
    return below && !itself && phase == value.place.phase && begin < value.seq && value.seq < end;
  }
};

class Stretches {
 public:
  Stretches(const StepValues& step, const format::Definitions& names) : names_(names) {
    for (const auto& [key, call] : step.calls) {
      if (key.op || call.outputs.empty()) continue;
      Stretch one{names.text(key.scope), key.phase, ~uint64_t{0}, 0, true};
      for (const Value* input : call.inputs) one.begin = std::min(one.begin, input->seq);
      for (const Value* output : call.outputs) {
        one.end = std::max(one.end, output->seq);
        one.finite &= output->measured() && !bad(*output);
      }
      all_.push_back(one);
    }
  }

  /// @return the innermost.
  [[nodiscard]] const Stretch* finite_around(const Value& value) const {
    const Stretch* found = nullptr;
    for (const Stretch& one : all_) {
      if (!one.finite || !one.contains(value, names_)) continue;
      if (found == nullptr || one.begin > found->begin) found = &one;
    }
    return found;
  }
  [[nodiscard]] bool any_around(const Value& value) const {
    return std::ranges::any_of(all_,
                               [&](const Stretch& one) { return one.contains(value, names_); });
  }

 private:
  const format::Definitions& names_;
  std::vector<Stretch> all_;
};

class Births : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    if (found_) return;
    const auto scaled = [](const Value& value) { return value.role == Role::kLossScale; };
    scaled_ |= std::ranges::any_of(step.values, scaled);
    const Value* data = nullptr;
    std::vector<const Value*> all;
    for (const Value& value : step.values) {
      if (value.measured()) look("nan");
      if (!bad(value) || diff::leaves_unwritten(around.names.text(value.op))) continue;
      if (value.place.phase == Phase::kData) {
        if (data == nullptr) data = &value;
      } else if (value.place.phase == Phase::kBackward && scaled_) {
        if (!hinted_) tell_birth(step, around, value, Severity::kHint);
        hinted_ = true;
      } else {
        all.push_back(&value);
      }
    }
    found_ = !all.empty() && follow(step, around, all, data);
    if (data != nullptr && !missing_ && !found_) tell_birth(step, around, *data, Severity::kHint);
    missing_ |= data != nullptr;
  }

 private:
  /// Whether a value that is not finite makes the step worthless.
  static bool counts(const Value& value, const Stretches& calls) {
    if (is_of(value, {Role::kGradient, Role::kUnclipped, Role::kGradientNorm, Role::kParameter,
                      Role::kLoss}))
      return true;
    if (value.role == Role::kBuffer) return value.stats.nan != 0;  // a table may hold infinities
    return value.role == Role::kOutput && !value.op && !value.kernel &&
           value.place.phase != Phase::kRecompute && !calls.any_around(value);
  }

  /// @return whether a value that counts was reached.
  bool follow(const StepValues& step, const Surroundings& around,
              const std::vector<const Value*>& all, const Value* data) {
    const Stretches calls(step, around.names);
    const auto end =
        std::ranges::find_if(all, [&](const Value* value) { return counts(*value, calls); });
    if (end == all.end()) {
      if (data == nullptr && !noted_) tell_note(step, around, *all.front());
      noted_ |= data == nullptr;
      return false;
    }
    if (data != nullptr) {
      tell_birth(step, around, *data, Severity::kWarning);
      return true;
    }
    const Value& reached = **end;
    const auto birth = std::find_if(all.begin(), end, [&](const Value* value) {
      return calls.finite_around(*value) == nullptr;
    });
    const Value& born = **birth;
    const bool masks = reached.stats.nan == 0 && reached.role == Role::kOutput;
    Finding& finding =
        tell_birth(step, around, born, masks ? Severity::kWarning : Severity::kError);
    if (&born != &reached)
      finding.evidence.push_back("reaches " + place_of(around, reached) + ", record " +
                                 std::to_string(reached.seq));
    if (birth != all.begin())
      finding.evidence.push_back("that of " + place_of(around, *all.front()) +
                                 " before it does not leave " +
                                 around_text(*calls.finite_around(*all.front())));
    return true;
  }

  static std::string around_text(const Stretch& call) {
    return call.scope.empty() ? "the root module" : "module " + std::string(call.scope);
  }

  static std::string place_of(const Surroundings& around, const Value& value) {
    return std::string(around.names.text(value.slot)) + " of " +
           module_name(around.names, value.place.scope);
  }

  void tell_note(const StepValues& step, const Surroundings& around, const Value& value) {
    Finding finding = about("nan", Severity::kHint, around, step.number, value);
    finding.text = std::string(value.stats.nan != 0 ? "NaN" : "Infinity") + " in " +
                   place_of(around, value) +
                   " goes no further: no loss, gradient, parameter or output of a root has one.";
    finding.evidence = {numbers(value)};
    finding.cause = "rows that are masked out, or elements that a later operator replaces";
    finding.next = "convtrace show --nan TRACE";
    report(std::move(finding));
  }

  static std::string numbers(const Value& value) {
    const uint64_t infinite = value.stats.pos_inf + value.stats.neg_inf;
    return std::to_string(value.stats.nan) + " NaN, " + std::to_string(infinite) + " infinite of " +
           tools::counted(value.stats.count, "element") + " (" +
           std::string(to_string(value.dtype)) + "), record " + std::to_string(value.seq);
  }

  Finding& tell_birth(const StepValues& step, const Surroundings& around, const Value& value,
                      Severity severity) {
    Finding finding = about("nan", severity, around, step.number, value);
    std::string which = " of the run is in ";
    if (hinted_ || missing_) which = " that the data and the loss scale do not explain is in ";
    if (noted_) which = " of the run that goes further is in ";
    finding.text = std::string("The first ") + (value.stats.nan != 0 ? "NaN" : "infinity") + which +
                   place_of(around, value) + ".";
    finding.evidence = {numbers(value)};
    const CallKey key{value.place.scope, value.op, value.place.phase, value.place.call};
    if (const auto call = step.calls.find(key); call != step.calls.end()) {
      for (const Value* input : call->second.inputs)
        if (input->finite() && input != &value &&
            format::number_class(input->dtype) == format::NumberClass::kFloat)
          finding.evidence.push_back(std::string(around.names.text(input->slot)) +
                                     ": finite, up to " +
                                     tools::number_text(input->stats.amax.as_f64()));
    }
    if (value.poisoned != 0)
      finding.evidence.push_back(tools::counted(value.poisoned, "element") +
                                 " hold what CONVTRACE_POISON fills new memory with");
    finding.cause =
        value.poisoned != 0 ? "memory that was never written"
        : value.place.phase == Phase::kData
            ? severity == Severity::kHint
                  ? "the data contain it, perhaps for what is missing; no later value does"
                  : "the data contain it"
        : severity == Severity::kHint
            ? "the GradScaler's scale is too large yet; it passes over such a step"
            : "an overflow, a division by zero, a logarithm or root of nothing, memory that was "
              "not written";
    finding.next = "convtrace show --nan TRACE";
    return report(std::move(finding));
  }

  bool found_ = false, noted_ = false, hinted_ = false, missing_ = false, scaled_ = false;
};

}  // namespace

std::unique_ptr<Check> make_births() { return std::make_unique<Births>(); }

}  // namespace convtrace::check

/// @file infinite_moment.cpp
/// infinite-moment: a finite gradient is so large that its square is infinite in the optimizer, and
/// what it belongs to never moves again.
///
/// Why it is a fault: an average of squares that is infinite once stays so, each later update is
/// divided by it, and losses stay finite while a part of the model is dead.
/// Proof: the optimizer's state, where it was recorded (CONVTRACE_OPTIMIZER_STATE); or the
/// parameter, which moves before and is still from there on, but for its weight decay; or the
/// arithmetic alone, where the share of the square that is added overflows.
/// Level: an error where state or parameter prove it, a warning where the arithmetic alone does.
/// Silent: optimizers that are not torch's own; gradients that are not finite (see nan).

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "tools/check/model/checks.h"
#include "tools/check/model/second_moment.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

constexpr size_t kParametersTold = 3;
/// Relative tolerance of a decay that is estimated from 32-bit sketches.
constexpr double kDecayTolerance = 0.05;

class InfiniteMoment : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const auto& [parameter, now] : step.parameters) follow(step, around, parameter, now);
    for (const Value& value : step.values) take_state(step, around, value);
  }

  void end(const Surroundings& around) override {
    std::map<uint32_t, std::vector<const Entry*>> by_step;
    for (const Entry& entry : all_)
      if (entry.second.since != format::kNoStep && is_proven(entry.second))
        by_step[entry.second.since].push_back(&entry);
    for (auto& [step, entries] : by_step) tell(around, step, entries);
  }

 private:
  struct Known {
    std::optional<Value> last{};  ///< the parameter
    double largest = 0;           ///< largest magnitude in its other gradients
    std::optional<Value> gradient{};
    uint32_t since = format::kNoStep;
    Overflow overflow = Overflow::kNone;
    bool decays = false;
    uint32_t still = 0, moved = 0;  ///< updates since, by gradients that are not zero
    std::string state{};            ///< the state that is infinite, "exp_avg_sq"
    uint64_t infinite = 0, count = 0;
  };
  using Entry = std::pair<const Parameter, Known>;

  static bool is_dead(const Known& known) { return known.still > 0 && known.moved == 0; }
  static bool is_proven(const Known& known) {
    return known.overflow == Overflow::kCertain || !known.state.empty() || is_dead(known);
  }

  void follow(const StepValues& step, const Surroundings& around, const Parameter& parameter,
              const ParameterStep& now) {
    const Value* const gradient = now.gradient;
    Known& known = all_[parameter];
    if (now.initial != nullptr) known.last = *now.initial;
    if (gradient != nullptr && gradient->finite()) {
      look("infinite-moment");
      const Overflow overflow = squared_overflow(*gradient, around.facts);
      if (overflow != Overflow::kNone && known.since == format::kNoStep) {
        known.since = step.number;
        known.overflow = overflow;
        known.gradient = *gradient;
      } else {
        known.largest = std::max(known.largest, gradient->stats.amax.as_f64());
      }
    }
    if (now.updates.empty()) return;
    const Value& after = *now.updates.back();
    const bool pushed = gradient != nullptr && gradient->finite() && !gradient->zero();
    if (known.since != format::kNoStep && known.last && pushed) {
      known.decays |= known.last->stats.hash != after.stats.hash;
      ++(is_still(*known.last, after, around) ? known.still : known.moved);
    }
    known.last = after;
  }

  /// @return whether at most weight decay moved a parameter.
  static bool is_still(const Value& before, const Value& after, const Surroundings& around) {
    if (before.stats.hash == after.stats.hash) return true;
    double decay = 0;
    for (const auto& [group, text] : around.facts.settings("weight_decay"))
      decay = std::max(decay, Facts::number(text).value_or(0));
    const double expected = decay * around.facts.largest_rate().value_or(0);
    if (!(expected > 0) || !before.measured() || !after.measured()) return false;
    const double shrunk = (before.stats.l2 - after.stats.l2) / before.stats.l2;
    const double moved = relative_distance(before, after);
    return std::abs(shrunk - expected) < kDecayTolerance * expected && moved < 2 * expected;
  }

  /// An infinite state whose gradient was not recorded is a finding of `nan`.
  void take_state(const StepValues& step, const Surroundings& around, const Value& value) {
    if (value.role != Role::kState || !value.measured() || value.stats.pos_inf == 0) return;
    const std::string_view name = around.names.text(value.name);
    for (auto& [parameter, known] : all_) {
      const std::string_view owner = around.names.text(parameter.name);
      const bool is_own = parameter.scope == value.place.scope && name.starts_with(owner) &&
                          name.size() > owner.size() && name[owner.size()] == '.';
      if (!is_own || known.since != step.number || !known.state.empty()) continue;
      known.state = name.substr(owner.size() + 1);
      known.infinite = value.stats.pos_inf;
      known.count = value.stats.count;
    }
  }

  void tell(const Surroundings& around, uint32_t step, std::vector<const Entry*>& entries) {
    const auto size = [](const Entry* entry) {
      return entry->second.gradient->stats.amax.as_f64();
    };
    std::ranges::stable_sort(entries, std::ranges::greater(), size);
    const Entry& first = *entries.front();
    const bool proven = std::ranges::any_of(entries, [](const Entry* entry) {
      return is_dead(entry->second) || !entry->second.state.empty();
    });
    Finding finding = about("infinite-moment", proven ? Severity::kError : Severity::kWarning,
                            around, step, *first.second.gradient);
    const std::string type(to_string(first.second.gradient->dtype));
    finding.text = "The gradient of " + parameter_name(around.names, first.first) + " reaches " +
                   tools::number_text(size(&first), 3) + factor_text(first.second) +
                   ": its square is infinite in " + type + ", and so is the second moment of " +
                   std::string(optimizer_class(around.facts)) + " from step " +
                   std::to_string(step) + " on.";
    for (size_t i = 0; i < std::min(entries.size(), kParametersTold); ++i)
      finding.evidence.push_back(what_of(around, *entries[i]));
    if (entries.size() > kParametersTold)
      finding.evidence.push_back("and " + std::to_string(entries.size() - kParametersTold) +
                                 " more parameters");
    finding.cause =
        "one gradient that exploded: a division by nearly nothing, a loss that was not "
        "scaled back, a bad batch";
    finding.next =
        "clip gradients, or leave out such a step; what is dead needs a new state of the "
        "optimizer; look at the step: convtrace show --steps " +
        std::to_string(step) + " TRACE";
    report(std::move(finding));
  }

  static std::string factor_text(const Known& known) {
    if (!(known.largest > 0)) return "";
    return ", " + tools::times_text(known.gradient->stats.amax.as_f64() / known.largest) +
           " times its largest of all other steps";
  }

  static std::string what_of(const Surroundings& around, const Entry& entry) {
    const Known& known = entry.second;
    std::string text = parameter_name(around.names, entry.first) + ": gradient up to " +
                       tools::number_text(known.gradient->stats.amax.as_f64(), 3);
    if (!known.state.empty())
      text += ", " + known.state + " has " + std::to_string(known.infinite) + " infinite of " +
              tools::counted(known.count, "element");
    if (is_dead(known))
      text += ", dead: none of the " + tools::counted(known.still, "update") + " from step " +
              std::to_string(known.since) + " on moves it" +
              (known.decays ? ", but for weight decay" : "");
    return text;
  }

  std::map<Parameter, Known> all_;
};

}  // namespace

std::unique_ptr<Check> make_infinite_moment() { return std::make_unique<InfiniteMoment>(); }

}  // namespace convtrace::check

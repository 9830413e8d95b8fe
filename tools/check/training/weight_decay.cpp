/// @file weight_decay.cpp
/// weight-decay: the decay of weights acts on norms and biases, too (hint; only where it is asked
/// for by --only).
///
/// Why it may be one: recipes of transformers leave both out. Many correct programs do not, so the
/// check is off by default.
/// Judged: one group in all, with weight decay, and a module of a norm's class with a weight.

#include "tools/check/model/checks.h"

namespace convtrace::check {
namespace {

class WeightDecay : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    if (told_ || !step.trains) return;
    look("weight-decay");
    const Facts::Settings& decays = around.facts.settings("weight_decay");
    if (decays.size() != 1) return;
    const std::string& decay = decays.begin()->second;
    if (Facts::number(decay).value_or(0) <= 0) return;
    for (const auto& [parameter, seen] : step.parameters) {
      const bool norm =
          around.facts.class_of(parameter.scope).find("Norm") != std::string_view::npos;
      if (!norm || seen.updates.empty()) continue;
      told_ = true;
      Finding finding =
          about("weight-decay", Severity::kHint, around, step.number, *seen.updates.front());
      finding.text = "Weight decay " + decay + " acts on " +
                     parameter_name(around.names, parameter) + " and all other norms and biases.";
      finding.evidence = {"the optimizer has one group"};
      finding.cause = "all parameters were given to the optimizer as one list";
      finding.next = "give norms and biases in a group with weight_decay=0";
      report(std::move(finding));
      return;
    }
  }

 private:
  bool told_ = false;
};

}  // namespace

std::unique_ptr<Check> make_weight_decay() { return std::make_unique<WeightDecay>(); }

}  // namespace convtrace::check

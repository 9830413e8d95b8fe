/// @file two_steps.cpp
/// two-steps: a parameter is updated twice with the gradient of one backward pass.
///
/// Why it is a fault: the second update uses a gradient of weights that are gone.
/// Judged: two updates of a parameter in a step without a backward pass between them.
/// Not told apart: a program that takes two steps with one gradient on purpose.

#include <algorithm>

#include "tools/check/model/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

class TwoSteps : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    if (told_) return;
    for (const auto& [parameter, seen] : step.parameters) {
      if (!seen.updates.empty() && seen.gradient != nullptr) look("two-steps");
      if (seen.updates.size() < 2 || seen.gradient == nullptr) continue;
      if (seen.updates[0]->stats.hash == seen.updates[1]->stats.hash) continue;
      if (passes_between(step, *seen.updates[0], *seen.updates[1])) continue;
      told_ = true;
      Finding finding =
          about("two-steps", Severity::kWarning, around, step.number, *seen.updates[1]);
      finding.text = "The optimizer steps " + tools::counted(seen.updates.size(), "time") +
                     " for one backward pass: " + parameter_name(around.names, parameter) +
                     " moves each time.";
      for (const Value* update : seen.updates)
        finding.evidence.push_back("update " + std::to_string(update->place.call) + ": " +
                                   numbers_of(*update));
      finding.cause =
          "step() is called twice: by the program and by its framework, or by an optimizer around "
          "another one; "
          "or two optimizers have the same parameters";
      finding.next = "look for the second call of step()";
      report(std::move(finding));
      return;
    }
  }

 private:
  static bool passes_between(const StepValues& step, const Value& a, const Value& b) {
    return std::ranges::any_of(step.values, [&](const Value& value) {
      const bool pass = value.role == Role::kLoss || value.role == Role::kGradOutput;
      return pass && value.seq > a.seq && value.seq < b.seq;
    });
  }

  bool told_ = false;
};

}  // namespace

std::unique_ptr<Check> make_two_steps() { return std::make_unique<TwoSteps>(); }

}  // namespace convtrace::check

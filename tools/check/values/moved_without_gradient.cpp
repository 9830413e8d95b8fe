/// @file moved_without_gradient.cpp
/// moved-without-gradient: a parameter moved in a step in which it had no gradient.
///
/// Why it is a fault: plain gradient descent moves a parameter by its gradient alone. Something
/// else wrote into its memory.
/// Judged: where every optimizer is SGD without momentum and weight decay, between two consecutive
/// steps with values.
/// Silent: sparse embeddings, whose gradients are not recorded.
/// Not told apart: a program that changes weights itself (clipping of weights, pruning) where the
/// gradient is zero.

#include <algorithm>

#include "tools/check/model/checks.h"

namespace convtrace::check {
namespace {

class MovedWithoutGradient : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const auto& [parameter, seen] : step.parameters) {
      if (seen.updates.empty()) continue;
      const Value& now = *seen.updates.back();
      const Value* const gradient = seen.of_backward();
      const std::string_view attributes = around.facts.of_module(parameter.scope, "attributes");
      if (attributes.find("sparse=True") != std::string_view::npos) continue;
      const bool without = gradient == nullptr || gradient->zero();
      const auto before = before_.find(parameter);
      const bool judged = before != before_.end() && before->second.step + 1 == step.number &&
                          around.facts.plain_descent();
      if (judged) look("moved-without-gradient");
      if (judged && without && before->second.value.stats.hash != now.stats.hash)
        tell(step, around, parameter, before->second.value, now, gradient != nullptr);
      before_.insert_or_assign(parameter, Before{step.number, now});
    }
  }

 private:
  void tell(const StepValues& step, const Surroundings& around, const Parameter& parameter,
            const Value& before, const Value& now, bool zeros) {
    Finding finding = about("moved-without-gradient", Severity::kWarning, around, step.number, now);
    finding.text = "Parameter " + parameter_name(around.names, parameter) +
                   " moved in a step in which its gradient is " + (zeros ? "zero." : "missing.");
    finding.evidence = {"after step " + std::to_string(step.number - 1) + ": " + numbers_of(before),
                        "after this step: " + numbers_of(now),
                        "every optimizer is SGD without momentum and weight decay"};
    finding.cause = "another tensor shares its memory, or the program writes the weight itself";
    finding.next = "run `convtrace findings TRACE`";
    if (around.facts.of_program("setting.CONVTRACE_STACKS") != "all")
      finding.next += ", and CONVTRACE_STACKS=all to see who owns the memory";
    report(std::move(finding));
  }

  struct Before {
    uint32_t step = 0;
    Value value{};
  };
  std::map<Parameter, Before> before_;
};

}  // namespace

std::unique_ptr<Check> make_moved_without_gradient() {
  return std::make_unique<MovedWithoutGradient>();
}

}  // namespace convtrace::check

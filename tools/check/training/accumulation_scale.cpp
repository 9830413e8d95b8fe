/// @file accumulation_scale.cpp
/// accumulation-scale: the losses of micro-batches are means and are added up undivided (hint).
///
/// Why it may be a fault: the gradient then grows with the number of micro-batches.
/// Judged: steps with two or more backward passes whose loss is (1) the very output of a criterion
/// with the reduction `mean`; or (2) a mean of cross entropies: the magnitudes of such a loss's
/// gradient at the logits add up to at most 2, and to at most 2 / k once it is divided by k. More
/// than that in each of k micro-batches shows that it was not.
/// Not told apart: losses of different parts that are meant to be added (a critic's two).

#include <map>

#include "tools/check/model/checks.h"

namespace convtrace::check {
namespace {

class AccumulationScale : public Check {
  static constexpr unsigned kLeastSteps = 3;

 public:
  void see(const StepValues& step, const Surroundings& around) override {
    if (told_ || step.losses.size() < 2 || !step.trains) return;
    look("accumulation-scale");
    const CallStep* criterion = nullptr;
    size_t undivided = 0;
    const auto means = means_of(step, around);
    for (const Value* loss : step.losses) {
      const auto found = means.find(loss->stats.hash);
      if (found == means.end()) continue;
      criterion = found->second;
      ++undivided;
    }
    const bool exact = undivided == step.losses.size();
    if (!exact && !too_large(step, around)) {
      steps_ = 0;
      return;
    }
    if (++steps_ < kLeastSteps) return;
    told_ = true;
    Finding finding = about("accumulation-scale", Severity::kHint, around, step.number,
                            exact ? *criterion->outputs[0] : *step.losses.front());
    finding.text = "Each step adds the gradients of " + std::to_string(step.losses.size()) +
                   " losses" + ", each a mean, without dividing by their number.";
    finding.evidence = {
        exact ? "every loss of the step is the criterion's output, bit for bit"
              : "each adds more than 2 / " + std::to_string(step.losses.size()) +
                    " of gradient at the logits, the most that a divided mean can add"};
    finding.cause = "the loss of a micro-batch is not divided by the number of micro-batches";
    finding.next = "divide the loss by it, unless the losses are parts of one objective";
    report(std::move(finding));
  }

 private:
  /// By the hashes of their outputs, the calls of criteria with the reduction `mean`.
  static std::map<uint64_t, const CallStep*> means_of(const StepValues& step,
                                                      const Surroundings& around) {
    std::map<uint64_t, const CallStep*> found;
    for (const auto& [key, call] : step.calls) {
      if (call.outputs.size() == 1 &&
          around.facts.of_module(key.scope, "attributes").find("reduction='mean'") !=
              std::string_view::npos)
        found.emplace(call.outputs[0]->stats.hash, &call);
    }
    return found;
  }

  static bool too_large(const StepValues& step, const Surroundings& around) {
    const double most = 2.0 / static_cast<double>(step.losses.size());
    bool any = false;
    for (const Value* input : step.data) {
      const std::string_view loss =
          around.facts.of_module(input->place.scope, "loss.cross_entropy_loss");
      const auto outputs = step.grad_outputs.find(input->place.scope);
      if (loss.find("reduction='mean'") == std::string_view::npos ||
          outputs == step.grad_outputs.end())
        continue;
      for (const Value* gradient : outputs->second)
        if (!gradient->finite() || gradient->stats.l1.as_f64() <= most) return false;
      any = outputs->second.size() == step.losses.size();
    }
    return any;
  }

  unsigned steps_ = 0;
  bool told_ = false;
};

}  // namespace

std::unique_ptr<Check> make_accumulation_scale() { return std::make_unique<AccumulationScale>(); }

}  // namespace convtrace::check

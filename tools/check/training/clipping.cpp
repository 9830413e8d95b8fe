/// @file clipping.cpp
/// clip-after-step: gradients are clipped when the optimizer has already used them.
/// clipping: clipping acts in every step, or in none (hint).
///
/// Why it is a fault: clipping after the update changes nothing that is used.
/// Judged: within a step a parameter's gradient was clipped after its update.
/// Not seen: clipping in a hook of the optimizer itself, before or after its step.

#include "tools/check/model/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

class Clipping : public Check {
  static constexpr unsigned kLeastSteps = 8;

 public:
  void see(const StepValues& step, const Surroundings& around) override {
    bool clips = false, acts = false;
    for (const auto& [parameter, seen] : step.parameters) {
      if (seen.unclipped == nullptr) continue;
      look("clip-after-step");
      if (!seen.updates.empty() && seen.updates.front()->seq < seen.unclipped->seq) {
        if (!told_) tell_late(step, around, parameter, seen);
        return;
      }
      if (seen.gradient == nullptr) continue;
      clips = true;
      acts |= seen.gradient->stats.hash != seen.unclipped->stats.hash;
    }
    if (!clips) return;
    look("clipping");
    if (steps_++ == 0) first_ = step.number;
    acting_ += acts ? 1 : 0;
  }

  void end(const Surroundings& around) override {
    if (steps_ < kLeastSteps || (acting_ != 0 && acting_ != steps_)) return;
    Finding finding{
        .id = "clipping", .severity = Severity::kHint, .rank = around.rank, .step = first_};
    finding.phase = format::Phase::kBackward;
    finding.text = std::string("Clipping of gradients acts in ") +
                   (acting_ == 0 ? "none" : "every one") + " of " + tools::counted(steps_, "step") +
                   ".";
    finding.evidence = {std::to_string(acting_) + " of " + tools::counted(steps_, "step") +
                        " with another gradient after clipping than before"};
    finding.cause = acting_ == 0 ? "a limit above the norms" : "a limit below the norms";
    finding.next = "convtrace show --norms TRACE shows both norms of each step";
    report(std::move(finding));
  }

 private:
  void tell_late(const StepValues& step, const Surroundings& around, const Parameter& parameter,
                 const ParameterStep& seen) {
    told_ = true;
    Finding finding =
        about("clip-after-step", Severity::kWarning, around, step.number, *seen.unclipped);
    finding.text =
        "Gradients are clipped after the optimizer's step, which has used them unclipped.";
    finding.evidence = {parameter_name(around.names, parameter) + ": updated in record " +
                        std::to_string(seen.updates.front()->seq) + ", clipped in record " +
                        std::to_string(seen.unclipped->seq)};
    finding.cause = "clip_grad_norm_() is called behind step()";
    finding.next = "call it between backward() and step(), with a GradScaler behind unscale_()";
    report(std::move(finding));
  }

  unsigned steps_ = 0, acting_ = 0;
  uint32_t first_ = 0;
  bool told_ = false;
};

}  // namespace

std::unique_ptr<Check> make_clipping() { return std::make_unique<Clipping>(); }

}  // namespace convtrace::check

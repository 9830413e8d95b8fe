/// @file same_batch.cpp
/// same-batch: three training steps running took the same data, bit for bit.
///
/// Why it is a fault: a loader that is made anew in each step gives its first batch for ever. A
/// program that trains on one batch on purpose is reported, too.
/// Judged: inputs of root modules that are no outputs of other modules.
/// Silent: data that are one number, a single element or whole numbers in a row (positions); steps
/// without values in between.

#include "tools/check/model/batch.h"
#include "tools/check/training/checks.h"

namespace convtrace::check {
namespace {

constexpr unsigned kSteps = 3;

class SameBatch : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    if (!step.trains) return;
    const auto [batch, content] = batch_of(step);
    if (content != nullptr) look("same-batch");
    const bool again = content != nullptr && batch == batch_ && step.number == last_ + 1;
    repeats_ = again ? repeats_ + 1 : 1;
    batch_ = batch;
    last_ = step.number;
    if (repeats_ != kSteps) return;
    Finding finding =
        about("same-batch", Severity::kWarning, around, step.number - kSteps + 1, *content);
    finding.text = "Steps " + std::to_string(step.number - kSteps + 1) + " to " +
                   std::to_string(step.number) + " took the same batch.";
    finding.evidence = {finding.slot + ": " + numbers_of(*content) + " in each of them"};
    finding.cause =
        "next(iter(loader)) in each step, a sampler that starts again, data kept in a variable";
    finding.next = "look at the loop that draws batches";
    report(std::move(finding));
  }

 private:
  uint64_t batch_ = 0;
  uint32_t last_ = format::kNoStep;
  unsigned repeats_ = 0;
};

}  // namespace

std::unique_ptr<Check> make_same_batch() { return std::make_unique<SameBatch>(); }

}  // namespace convtrace::check

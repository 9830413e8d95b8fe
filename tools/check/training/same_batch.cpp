/// @file same_batch.cpp
/// same-batch: three training steps running took the same data, bit for bit.
///
/// Why it is a fault: a loader that is made anew in each step gives its first batch for ever. A
/// program that trains on one batch on purpose is reported, too: as a hint where the batch is one
/// tensor that nothing has written in between, as in training on all data at once.
/// Judged: inputs of root modules that are no outputs of other modules.
/// Silent: data that are one number, a single element or whole numbers in a row (positions); steps
/// without values in between.

#include "tools/check/model/batch.h"
#include "tools/check/model/checks.h"

namespace convtrace::check {
namespace {

constexpr unsigned kSteps = 3;

/// @return whether two records are of one tensor with the same count of writes.
bool is_one_tensor(const Value& a, const Value& b) {
  return a.storage != 0 && a.storage == b.storage && a.generation == b.generation &&
         a.offset == b.offset && a.version == b.version;
}

class SameBatch : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    if (!step.trains) return;
    const auto [batch, content] = batch_of(step);
    if (content != nullptr) look("same-batch");
    const bool again = content != nullptr && batch == batch_ && step.number == last_ + 1;
    repeats_ = again ? repeats_ + 1 : 1;
    is_kept_ = again && (repeats_ == 2 || is_kept_) && is_one_tensor(last_content_, *content);
    if (content != nullptr) last_content_ = *content;
    batch_ = batch;
    last_ = step.number;
    if (repeats_ != kSteps) return;
    Finding finding = about("same-batch", is_kept_ ? Severity::kHint : Severity::kWarning, around,
                            step.number - kSteps + 1, *content);
    finding.text = "Steps " + std::to_string(step.number - kSteps + 1) + " to " +
                   std::to_string(step.number) + " took the same batch" +
                   (is_kept_ ? ", a tensor that was not written in between." : ".");
    finding.evidence = {finding.slot + ": " + numbers_of(*content) + " in each of them"};
    finding.cause = is_kept_ ? "all data in each step, or a batch kept in a variable"
                             : "next(iter(loader)) in each step, a sampler that starts again, data "
                               "copied from a variable";
    finding.next = "look at the loop that draws batches";
    report(std::move(finding));
  }

 private:
  uint64_t batch_ = 0;
  uint32_t last_ = format::kNoStep;
  unsigned repeats_ = 0;
  Value last_content_;    // of the last step with data
  bool is_kept_ = false;  // whether it is one tensor in all of the repeated steps
};

}  // namespace

std::unique_ptr<Check> make_same_batch() { return std::make_unique<SameBatch>(); }

}  // namespace convtrace::check

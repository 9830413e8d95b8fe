/// @file gradients_add_up.cpp
/// gradients-add-up: gradients contain those of the steps before.
///
/// Why it is a fault: without zero_grad() each step adds its gradient to the sum of all before it.
/// How it shows: the sum of the elements of a bias's gradient is that of the gradients of its
/// module's outputs, for layers that add a bias. In a run that does not clear, it is the sum over
/// all steps so far instead, in every step.
/// Judged: classes of torch that add a bias, in runs of one rank without a loss scale, in three
/// steps in which the two sums are unlike.

#include <cmath>
#include <map>
#include <string>

#include "tools/check/training/bias_gradients.h"
#include "tools/check/training/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

class GradientsAddUp : public Check {
  static constexpr unsigned kLeastSteps = 3;

 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const Value& value : step.values) scaled_ |= value.role == Role::kLossScale;
    if (scaled_ || told_ || !around.alone) return;
    for_each_bias(step, around,
                  [&](const Parameter& parameter, const Value& gradient,
                      const std::vector<const Value*>& outputs) {
                    if (!told_) follow(step, around, parameter, gradient, outputs);
                  });
  }

 private:
  struct Sums {
    double all = 0,
           size = 0;  ///< sums over all output gradients so far, and over their magnitudes
    uint32_t last = 0;
    unsigned steps = 0;  ///< seen so far without a gap
    unsigned added = 0;  ///< steps whose gradient is the sum of all since it was cleared
    uint32_t first = 0;  ///< the first of these
  };

  void follow(const StepValues& step, const Surroundings& around, const Parameter& parameter,
              const Value& gradient, const std::vector<const Value*>& outputs) {
    double now = 0, size = 0;
    for (const Value* output : outputs) {
      if (!output->finite()) return;
      now += output->stats.sum.as_f64();
      size += output->stats.l1.as_f64();
    }
    Sums& sums = sums_[parameter];
    if (sums.steps != 0 && step.number != sums.last + 1) sums = {};
    sums.last = step.number;
    sums.all += now;
    sums.size += size;
    if (sums.steps++ == 0) return;  // nothing before it
    look("gradients-add-up");
    const double found = gradient.stats.sum.as_f64(), allowed = kSameSums * sums.size;
    const bool whole = std::abs(found - sums.all) <= allowed;
    const bool own = std::abs(found - now) <= 10 * allowed;
    if (own && !whole)  // it was cleared before this step
      sums = {.all = now,
              .size = size,
              .last = step.number,
              .steps = 1,
              .added = sums.added,
              .first = sums.first};
    if (own || !whole) return;
    if (sums.added++ == 0) sums.first = step.number;
    if (sums.added < kLeastSteps) return;
    told_ = true;
    Finding finding = about("gradients-add-up", Severity::kError, around, sums.first, gradient);
    finding.text = "Gradients add up over the steps: that of " +
                   parameter_name(around.names, parameter) + " contains those of the steps before.";
    finding.evidence = {"sum of its elements in step " + std::to_string(step.number) + ": " +
                            tools::number_text(found),
                        "gradients of the module's outputs, this step: " + tools::number_text(now) +
                            ", all since they were cleared: " + tools::number_text(sums.all)};
    finding.cause = "optimizer.zero_grad() is missing, or clears other parameters";
    finding.next = "call optimizer.zero_grad() before each backward pass that begins a step";
    report(std::move(finding));
  }

  std::map<Parameter, Sums> sums_;
  bool scaled_ = false, told_ = false;
};

}  // namespace

std::unique_ptr<Check> make_gradients_add_up() { return std::make_unique<GradientsAddUp>(); }

}  // namespace convtrace::check

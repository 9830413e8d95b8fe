/// @file gradients_add_up.cpp
/// gradients-add-up: gradients contain those of the steps before.
///
/// Why it is a fault: without zero_grad() each step adds its gradient to the sum of all before it.
/// How it shows: the sum of the elements of a bias's gradient is that of the gradients of its
/// module's outputs, for layers that add a bias. In a run that does not clear, it is the sum over
/// all steps so far instead, in every step.
/// Judged: classes of torch that add a bias, in runs of one rank without a loss scale, in three
/// steps in which the two sums are unlike.
///
/// Or a part of the gradients is not cleared. Judged: the records `grad_before:NAME`, which the
/// observer makes where a gradient that the optimizer has used is there when the next backward pass
/// begins. A warning where that has its bits in two steps, and the optimizer then takes other bits in
/// its memory, while other gradients are cleared. Silent: gradients that were
/// cleared or changed before a later pass of the step, or that all stay.

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tools/check/model/checks.h"
#include "tools/check/training/bias_gradients.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

class GradientsAddUp : public Check {
  static constexpr unsigned kLeastSteps = 3;

 public:
  void see(const StepValues& step, const Surroundings& around) override {
    look_for_left(step, around);
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

  /// A gradient that an optimizer has used, until it uses the next one.
  struct Used {
    uint64_t hash = 0, storage = 0, offset = 0;  ///< no hash: not known, or zeros
    bool stays = false;                          ///< it was there when the next pass began
    bool cleared = false;                        ///< or changed, before a later pass
    unsigned left = 0;                           ///< steps in which it was not cleared
  };

  void look_for_left(const StepValues& step, const Surroundings& around) {
    std::vector<const Value*> left;
    bool again = false;
    for (const Value& value : step.values) {
      if (value.role == Role::kGradientBefore && !value.op) {
        Used& used = used_[{value.place.scope, value.name}];
        const bool same = value.stats.hash == used.hash && value.storage == used.storage;
        used.cleared |= value.zero() || (!same && !used.stays);
        used.stays |= same;
      }
      if (value.role != Role::kGradient) continue;
      Used& used = used_[{value.place.scope, value.name}];
      const bool stayed = used.stays && !used.cleared && value.storage == used.storage &&
                          value.offset == used.offset && value.stats.hash != used.hash;
      if (stayed) {
        left.push_back(&value);
        again |= ++used.left == 2;
      } else if (used.hash != 0) {
        any_cleared_ = true;
      }
      used = {.hash = value.finite() && !value.zero() ? value.stats.hash : 0,
              .storage = value.storage,
              .offset = value.offset,
              .left = used.left};
    }
    if (!again || left_told_ || !any_cleared_) return;
    left_told_ = true;
    const Value& first = *left.front();
    Finding finding = about("gradients-add-up", Severity::kWarning, around, step.number, first);
    const bool several = left.size() > 1;
    finding.text = "Gradients add up over the steps: " + std::string(several ? "those" : "that") +
                   " of " + parameter_name(around.names, {first.place.scope, first.name}) +
                   (several ? " and " + std::to_string(left.size() - 1) + " more" : "") +
                   " that the optimizer has used " + (several ? "are" : "is") +
                   " still there when the next backward pass begins, while others are cleared.";
    finding.evidence = {"taken now: " + numbers_of(first)};
    finding.cause = "zero_grad() of another optimizer or of a part of the model";
    finding.next = "clear these, too, before each backward pass that begins a step";
    report(std::move(finding));
  }

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
  std::map<Parameter, Used> used_;
  bool scaled_ = false, told_ = false, left_told_ = false, any_cleared_ = false;
};

}  // namespace

std::unique_ptr<Check> make_gradients_add_up() { return std::make_unique<GradientsAddUp>(); }

}  // namespace convtrace::check

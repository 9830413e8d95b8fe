/// @file norm_growth.cpp
/// norm-growth: a module's output grows by a steady factor from step to step, and is on its way to
/// an overflow.
///
/// Why it is a fault: growth by a steady factor has no end. A warning where the loss rises, too,
/// else a hint, since many networks grow fast in their first steps.
/// Silent: fewer than eight steps in a row, growth by less than 30 times in all, factors that vary
/// by more than 1.6.

#include <algorithm>
#include <cmath>

#include "tools/check/model/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

constexpr double kLeastGrowth = 30, kLeastFactor = 1.25, kSteady = 1.6, kRisen = 2;

class NormGrowth : public Check {
  static constexpr unsigned kLeastSteps = 8;

 public:
  void see(const StepValues& step, const Surroundings& around) override {
    if (!step.trains || done_) return;
    double loss = 0;
    for (const Value* one : step.losses) loss += one->stats.mean;
    for (const Value& value : step.values) {
      const bool output =
          value.role == Role::kOutput && value.place.phase == format::Phase::kForward;
      if (!output || value.place.call != 0 || value.op || !value.finite()) continue;
      follow(step, around, value, loss);
      if (done_) return;
    }
  }

 private:
  struct Run {
    double first = 0, last = 0, first_loss = 0, least = HUGE_VAL, most = 0;
    unsigned steps = 0;
    uint32_t step = format::kNoStep;  ///< the last
  };

  void follow(const StepValues& step, const Surroundings& around, const Value& value, double loss) {
    Run& run = runs_[{value.place.scope, value.slot}];
    if (run.step != format::kNoStep && step.number != run.step + 1) run = {};
    run.step = step.number;
    const double norm = value.rms();
    if (!std::isfinite(norm)) {
      run = {};
      return;
    }
    const double factor = run.last > 0 ? norm / run.last : 0;
    const double least = std::min(run.least, factor), most = std::max(run.most, factor);
    if (factor < kLeastFactor || most > kSteady * least) {
      run = {.first = norm, .last = norm, .first_loss = loss, .step = step.number};
      return;
    }
    look("norm-growth");
    run.last = norm, run.least = least, run.most = most;
    if (++run.steps < kLeastSteps || norm < kLeastGrowth * run.first) return;
    done_ = true;
    tell(step, around, value, run, loss);
  }

  static std::string overflow_text(uint32_t step, double left) {
    if (!(left >= 0 && left < 1e9)) return "";
    return "; it would overflow near step " + std::to_string(step + static_cast<uint64_t>(left));
  }

  void tell(const StepValues& step, const Surroundings& around, const Value& value, const Run& run,
            double loss) {
    const bool risen = loss > kRisen * std::abs(run.first_loss);
    Finding finding = about("norm-growth", risen ? Severity::kWarning : Severity::kHint, around,
                            step.number, value);
    const double factor = std::pow(run.last / run.first, 1.0 / run.steps);
    const double limit = format::largest_finite(value.dtype);
    const double left = std::log(limit / value.stats.amax.as_f64()) / std::log(factor);
    finding.text = finding.slot + " of " + module_name(around.names, value.place.scope) + " grew " +
                   tools::times_text(factor) + " times a step over " + std::to_string(run.steps) +
                   " steps" + overflow_text(step.number, left) + ".";
    finding.evidence = {
        "root mean square " + tools::number_text(run.first) + " to " + tools::number_text(run.last),
        "loss " + tools::number_text(run.first_loss) + " to " + tools::number_text(loss)};
    finding.cause =
        "a learning rate that is too large, a missing normalisation, a state that is fed back";
    finding.next = "convtrace show --norms TRACE";
    report(std::move(finding));
  }

  std::map<std::pair<format::StringId, format::StringId>, Run> runs_;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<Check> make_norm_growth() { return std::make_unique<NormGrowth>(); }

}  // namespace convtrace::check

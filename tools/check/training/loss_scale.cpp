/// @file loss_scale.cpp
/// loss-scale: the factor of a GradScaler falls and falls.
///
/// Why it is a fault: a scaler lowers its factor where gradients are infinite, a few times at the
/// begin. One that goes on has gradients that are never finite.
/// Judged: at the end of the run, six decreases without an increase, the last of them in one of the
/// last three recorded steps; or a factor below 1.

#include "tools/check/model/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

constexpr unsigned kManyFalls = 6, kLastSteps = 3;

class LossScale : public Check {
 public:
  void see(const StepValues& step, const Surroundings&) override {
    for (const Value& value : step.values) {
      if (value.role != Role::kLossScale || !value.measured()) continue;
      look("loss-scale");
      const double scale = value.stats.mean;
      if (first_ == 0) first_ = scale;
      ++since_;
      if (last_ != 0 && scale > last_) falls_ = 0;
      if (last_ != 0 && scale < last_) {
        if (falls_++ == 0) begin_ = step.number;
        since_ = 0;
        where_ = value;
      }
      last_ = scale;
    }
  }

  void end(const Surroundings& around) override {
    const bool goes_on = falls_ >= kManyFalls && since_ < kLastSteps;
    if (!goes_on && (last_ >= 1 || falls_ == 0)) return;
    Finding finding = about("loss-scale", Severity::kWarning, around, begin_, where_);
    finding.text = "The loss scale fell " + tools::counted(falls_, "time") +
                   " without rising, to " + tools::number_text(last_) + ".";
    finding.evidence = {"at first " + tools::number_text(first_)};
    finding.cause = "gradients that are infinite or NaN in each step, whatever the scale";
    finding.next = "convtrace show --nan TRACE";
    report(std::move(finding));
  }

 private:
  double first_ = 0, last_ = 0;
  unsigned falls_ = 0, since_ = 0;  ///< recorded scales since the last fall
  uint32_t begin_ = 0;
  Value where_{};
};

}  // namespace

std::unique_ptr<Check> make_loss_scale() { return std::make_unique<LossScale>(); }

}  // namespace convtrace::check

/// @file loss_scale.cpp
/// loss-scale: the factor of a GradScaler falls and falls.
///
/// Why it is a fault: a scaler lowers its factor where gradients are infinite, a few times at the
/// begin. One that goes on has gradients that are never finite.
/// Judged: six decreases without an increase, or a factor below 1.

#include "tools/check/training/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

constexpr unsigned kManyFalls = 6;

class LossScale : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const Value& value : step.values) {
      if (value.role != Role::kLossScale || !value.measured()) continue;
      look("loss-scale");
      const double scale = value.stats.mean;
      if (first_ == 0) first_ = scale;
      if (last_ != 0 && scale < last_) ++falls_;
      if (last_ != 0 && scale > last_) falls_ = 0;
      last_ = scale;
      if (told_ || (falls_ < kManyFalls && (scale >= 1 || falls_ == 0))) continue;
      told_ = true;
      Finding finding = about("loss-scale", Severity::kWarning, around, step.number, value);
      finding.text = "The loss scale fell " + std::to_string(falls_) +
                     " times without rising, to " + tools::number_text(scale) + ".";
      finding.evidence = {"at first " + tools::number_text(first_)};
      finding.cause = "gradients that are infinite or NaN in each step, whatever the scale";
      finding.next = "convtrace show --nan TRACE";
      report(std::move(finding));
    }
  }

 private:
  double first_ = 0, last_ = 0;
  unsigned falls_ = 0;
  bool told_ = false;
};

}  // namespace

std::unique_ptr<Check> make_loss_scale() { return std::make_unique<LossScale>(); }

}  // namespace convtrace::check

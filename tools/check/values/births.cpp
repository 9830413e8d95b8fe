/// @file births.cpp
/// nan: the first NaN or infinity of a run.
///
/// Why it is a fault: no value of a training that works is one. Negative infinities alone are not
/// counted, since attention masks consist of them. Positive infinities without a NaN are a warning:
/// they may mask a minimum.
/// Lower levels: NaN in the data that stay there stand for missing values (hint), else they are the
/// origin (warning); infinite gradients under a GradScaler are how it finds its scale (hint).

#include <algorithm>

#include "tools/check/values/checks.h"
#include "tools/common/text.h"
#include "tools/diff/model/record.h"

namespace convtrace::check {
namespace {

using format::Phase;

bool bad(const Value& value) {
  return value.measured() && (value.stats.nan != 0 || value.stats.pos_inf != 0);
}

class Births : public Check {
 public:
  void see(const StepValues& step, const Surroundings& around) override {
    if (found_) return;
    const auto scaled = [](const Value& value) { return value.role == Role::kLossScale; };
    scaled_ |= std::ranges::any_of(step.values, scaled);
    const Value* data = nullptr;
    for (const Value& value : step.values) {
      if (value.measured()) look("nan");
      if (!bad(value) || diff::leaves_unwritten(around.names.text(value.op))) continue;
      if (value.place.phase == Phase::kData) {
        if (data == nullptr) data = &value;
        continue;
      }
      const bool gradient = value.place.phase == Phase::kBackward;
      if (gradient && scaled_) {
        if (!hinted_) tell(step, around, value, Severity::kHint);
        hinted_ = true;
        continue;  // what is born elsewhere may follow
      }
      if (data != nullptr) {
        tell(step, around, *data, Severity::kWarning);
      } else {
        const bool masks = value.stats.nan == 0 && value.role == Role::kOutput;
        tell(step, around, value, masks ? Severity::kWarning : Severity::kError);
      }
      found_ = true;
      return;
    }
    if (data != nullptr && !missing_) tell(step, around, *data, Severity::kHint);
    missing_ |= data != nullptr;
  }

 private:
  void tell(const StepValues& step, const Surroundings& around, const Value& value,
            Severity severity) {
    Finding finding = about("nan", severity, around, step.number, value);
    const uint64_t infinite = value.stats.pos_inf + value.stats.neg_inf;
    const bool again = hinted_ || missing_;
    finding.text =
        std::string("The first ") + (value.stats.nan != 0 ? "NaN" : "infinity") +
        (again ? " that the data and the loss scale do not explain is in " : " of the run is in ") +
        finding.slot + " of " + module_name(around.names, value.place.scope) + ".";
    finding.evidence = {std::to_string(value.stats.nan) + " NaN, " + std::to_string(infinite) +
                        " infinite of " + tools::counted(value.stats.count, "element") + " (" +
                        std::string(to_string(value.dtype)) + "), record " +
                        std::to_string(value.seq)};
    const CallKey key{value.place.scope, value.op, value.place.phase, value.place.call};
    if (const auto call = step.calls.find(key); call != step.calls.end()) {
      for (const Value* input : call->second.inputs)
        if (input->finite() && input != &value &&
            format::number_class(input->dtype) == format::NumberClass::kFloat)
          finding.evidence.push_back(std::string(around.names.text(input->slot)) +
                                     ": finite, up to " +
                                     tools::number_text(input->stats.amax.as_f64()));
    }
    finding.cause =
        value.place.phase == Phase::kData
            ? severity == Severity::kHint
                  ? "the data contain it, perhaps for what is missing; no later value does"
                  : "the data contain it"
        : severity == Severity::kHint
            ? "the GradScaler's scale is too large yet; it passes over such a step"
            : "an overflow, a division by zero, a logarithm or root of nothing, memory that was "
              "not written";
    finding.next = "convtrace show --nan TRACE";
    report(std::move(finding));
  }

  bool found_ = false, hinted_ = false, missing_ = false, scaled_ = false;
};

}  // namespace

std::unique_ptr<Check> make_births() { return std::make_unique<Births>(); }

}  // namespace convtrace::check

/// @file range_of_type.cpp
/// saturated: values pile up at the largest number of a 16- or 8-bit type. underflow: gradients of
/// f16 become subnormal, and no loss scale lifts them.
///
/// Why it is a fault: what is cut off at the end of a type's range is lost. A share that grew since
/// the first steps is a change of the run, not a property of the format.
/// Silent: tensors of fewer than 64 elements; shares that were as large at the begin.

#include <map>
#include <tuple>

#include "tools/check/model/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

constexpr double kManySaturated = 0.01, kGrown = 10;
constexpr double kManySubnormal = 0.25;

bool is_short(format::DType dtype) {
  using enum format::DType;
  return dtype == kF16 || dtype == kBF16 || dtype == kF8E4M3FN || dtype == kF8E5M2;
}

class RangeOfType : public Check {
  static constexpr uint64_t kLeastElements = 64;

 public:
  void see(const StepValues& step, const Surroundings& around) override {
    for (const Value& value : step.values) scaled_ |= value.role == Role::kLossScale;
    for (const Value& value : step.values) {
      if (!is_short(value.dtype) || !value.measured() || value.stats.count < kLeastElements)
        continue;
      look("saturated");
      const double count = static_cast<double>(value.stats.count);
      const double saturated = static_cast<double>(value.stats.saturated) / count;
      Place& place = places_[{value.place.scope, value.slot, value.place.phase}];
      const double subnormal = static_cast<double>(value.stats.subnormal) / count;
      if (!place.seen) place.first = saturated, place.first_subnormal = subnormal;
      place.seen = true;
      if (saturated >= kManySaturated && saturated >= kGrown * place.first && !place.saturated) {
        place.saturated = true;
        tell(step, around, value, "saturated", saturated, "at the largest number of", place.first,
             "growing values in a type of small range",
             "look at the norms of its inputs over the steps: convtrace show --norms TRACE");
      }
      const bool gradient = value.role == Role::kGradOutput || value.role == Role::kGradient;
      if (gradient && value.dtype == format::DType::kF16) look("underflow");
      if (gradient && !scaled_ && value.dtype == format::DType::kF16 &&
          subnormal >= kManySubnormal && subnormal >= kGrown * place.first_subnormal &&
          !place.subnormal) {
        place.subnormal = true;
        tell(step, around, value, "underflow", subnormal, "below the smallest normal number of",
             place.first_subnormal, "gradients of f16 without a loss scale",
             "use torch.amp.GradScaler, or bf16");
      }
    }
  }

 private:
  struct Place {
    double first = 0, first_subnormal = 0;
    bool seen = false, saturated = false, subnormal = false;
  };

  void tell(const StepValues& step, const Surroundings& around, const Value& value,
            std::string_view id, double share, const std::string& where, double first,
            const char* cause, const char* next) {
    Finding finding = about(id, Severity::kWarning, around, step.number, value);
    finding.text = tools::percent_text(share) + " of " + finding.slot + " of " +
                   module_name(around.names, value.place.scope) + " are " + where + " " +
                   std::string(to_string(value.dtype)) + ".";
    finding.evidence = {"in the first step " + tools::percent_text(first) + " of " +
                        tools::counted(value.stats.count, "element")};
    finding.cause = cause;
    finding.next = next;
    report(std::move(finding));
  }

  std::map<std::tuple<format::StringId, format::StringId, format::Phase>, Place> places_;
  bool scaled_ = false;
};

}  // namespace

std::unique_ptr<Check> make_range_of_type() { return std::make_unique<RangeOfType>(); }

}  // namespace convtrace::check

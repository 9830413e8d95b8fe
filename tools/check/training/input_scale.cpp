/// @file input_scale.cpp
/// input-scale: the data are of another size than in the steps before.
///
/// Why it is a fault: a normalisation that is missing from some step on, bytes instead of numbers
/// below 1.
/// Judged: floats of 16 elements and more, whose root mean square was steady (within 4 times) for
/// five steps and then is 20 times larger or smaller, in two steps running.
/// Not told apart: a curriculum, another data set from some step on.

#include <algorithm>
#include <cmath>
#include <map>

#include "tools/check/model/checks.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

constexpr double kSteady = 4, kOther = 20;

class InputScale : public Check {
  static constexpr unsigned kLeastSteps = 5, kLeastOthers = 2;
  static constexpr uint64_t kLeastElements = 16;

 public:
  void see(const StepValues& step, const Surroundings& around) override {
    if (!step.trains) return;
    for (const Value* value : step.data) {
      const bool is_float = format::number_class(value->dtype) == format::NumberClass::kFloat;
      if (!is_float || !value->measured() || value->stats.count < kLeastElements) continue;
      const double size = value->rms();
      Sizes& sizes = sizes_[{value->place.scope, value->slot}];
      if (sizes.told || !(size > 0)) continue;
      look("input-scale");
      const bool steady = sizes.steps >= kLeastSteps && sizes.most <= kSteady * sizes.least;
      if (steady && (size > kOther * sizes.most || size < sizes.least / kOther)) {
        if (sizes.others++ == 0) sizes.first = step.number;
        sizes.told = sizes.others == kLeastOthers;
        if (sizes.told) tell(sizes.first, around, *value, sizes.least, sizes.most);
        continue;
      }
      sizes.others = 0;
      sizes.least = std::min(sizes.least, size);
      sizes.most = std::max(sizes.most, size);
      ++sizes.steps;
    }
  }

 private:
  struct Sizes {
    double least = HUGE_VAL, most = 0;
    unsigned steps = 0, others = 0;
    uint32_t first = 0;  ///< the first step with another size
    bool told = false;
  };

  void tell(uint32_t step, const Surroundings& around, const Value& value, double least,
            double most) {
    Finding finding = about("input-scale", Severity::kWarning, around, step, value);
    finding.text = "The data are of another size than before: root mean square " +
                   tools::number_text(value.rms(), 3) + ", before " + tools::number_text(least, 3) +
                   " to " + tools::number_text(most, 3) + ".";
    finding.evidence = {finding.slot + ": " + numbers_of(value)};
    finding.cause =
        "a normalisation or a scaling by 255 that is left out, or done twice, from this step on";
    finding.next = "look at what prepares the data of this step";
    report(std::move(finding));
  }

  std::map<std::pair<format::StringId, format::StringId>, Sizes> sizes_;
};

}  // namespace

std::unique_ptr<Check> make_input_scale() { return std::make_unique<InputScale>(); }

}  // namespace convtrace::check

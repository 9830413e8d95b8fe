#pragma once
/// @file step_offset.h
/// Which step of the candidate is which of the baseline, where one of them was resumed.
///
/// Both runs' steps are numbered as in the run that counts further: StepShift is added to the
/// numbers of the other one.
///
/// Place:    diff.h decides it of each pair of traces; step_stream.h and equal_steps.h use it.
/// Threads:  plain values.
/// Source:   the fact `steps.updates_before`, docs/recording.md "Steps".

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "format/model/events.h"
#include "format/model/meta.h"

namespace convtrace::diff {

/// Added to the steps of one trace.
struct StepShift {
  uint32_t steps = 0;
  [[nodiscard]] uint32_t of(uint32_t step) const {
    if (step == format::kNoStep) return step;
    return step + std::min(steps, format::kNoStep - 1 - step);
  }
};

/// Step of the candidate = step of the baseline + `steps`.
struct StepOffset {
  int64_t steps = 0;
  std::string why;  ///< in words; empty: nothing says that there is one

  [[nodiscard]] StepShift of_base() const { return shift(steps); }
  [[nodiscard]] StepShift of_cand() const { return shift(-steps); }

 private:
  static StepShift shift(int64_t by) {
    return {static_cast<uint32_t>(std::clamp<int64_t>(by, 0, format::kNoStep - 1))};
  }
};

/// The fact that tells how many updates were made before step 0 of a trace: negative where steps of
/// inference came before the first.
inline constexpr std::string_view kUpdatesBefore = "steps.updates_before";

/// @param asked  what the user says; it overrules the traces.
[[nodiscard]] StepOffset step_offset(const format::TraceMeta& base, const format::TraceMeta& cand,
                                     std::optional<int64_t> asked);

}  // namespace convtrace::diff

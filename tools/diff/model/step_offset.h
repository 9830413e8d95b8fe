#pragma once
/// @file step_offset.h
/// The offset between the step numbers of two runs, of which one was resumed.
///
/// Both runs' steps get the numbers of the run that counts further: StepShift is added to the
/// numbers of the other one.
///
/// Place:    diff.h determines it for each pair of traces; step_stream.h and equal_steps.h apply
///           it.
/// Threads:  plain values.
/// Source:   the fact `steps.updates_before`, docs/recording.md "Steps".

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

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

/// Why there is an offset that the user gave.
inline constexpr std::string_view kOffsetAsked = "--step-offset";

/// Step of the candidate = step of the baseline + `steps`.
struct StepOffset {
  int64_t steps = 0;
  std::string why;       ///< in words; empty: there is no offset
  bool counted = false;  ///< the optimizers' own counters tell one
  /// Updates before step 0 by these counters, baseline and candidate, where the first weights are
  /// equal although the counters are not.
  std::optional<std::pair<int64_t, int64_t>> overruled{};

  [[nodiscard]] StepShift of_base() const { return shift(steps); }
  [[nodiscard]] StepShift of_cand() const { return shift(-steps); }

 private:
  static StepShift shift(int64_t by) {
    return {static_cast<uint32_t>(std::clamp<int64_t>(by, 0, format::kNoStep - 1))};
  }
};

/// The fact with the number of updates before step 0 of a trace; negative if steps of inference
/// came before the first update.
inline constexpr std::string_view kUpdatesBefore = "steps.updates_before";

/// @param asked  the user's offset, which overrides the traces.
[[nodiscard]] StepOffset step_offset(const format::TraceMeta& base, const format::TraceMeta& cand,
                                     std::optional<int64_t> asked);
/// @return no offset, for runs that begin with equal weights although the counters of their optimizers
/// differ: one has not loaded the optimizer's state. nullopt if one began with steps of inference,
/// which change no weights.
[[nodiscard]] std::optional<StepOffset> overruled_by_weights(const format::TraceMeta& base,
                                                             const format::TraceMeta& cand);
/// @return the offset of runs whose steps, numbered with `known`, are `by` apart: one of them begins
/// with the weights that the other one has later.
[[nodiscard]] StepOffset by_weights(const StepOffset& known, int64_t by);

}  // namespace convtrace::diff

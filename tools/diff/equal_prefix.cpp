#include "tools/diff/equal_prefix.h"

#include <algorithm>

#include "reader/step_sums.h"

namespace convtrace::diff {

std::vector<format::StepSums> equal_prefix(const reader::TraceReader& base,
                                           const reader::TraceReader& cand) {
  const auto whole = [](const reader::TraceReader& trace) {
    return trace.state() == reader::TraceState::kComplete;
  };
  if (!whole(base) || !whole(cand)) return {};
  std::vector<format::StepSums> sums = reader::load_step_sums(base.container());
  const std::vector<format::StepSums> others = reader::load_step_sums(cand.container());
  const auto unknown = [](const std::vector<format::StepSums>& of) {
    return !of.empty() && of.back().step == format::kNoStep;
  };
  if (unknown(sums) || unknown(others)) return {};
  sums.erase(std::ranges::mismatch(sums, others).in1, sums.end());
  return sums;
}

bool lies_in_prefix(const format::RecordHeader& chunk, uint32_t last) {
  return chunk.step_end != format::kNoStep && chunk.step_end <= last &&
         (chunk.flags & format::kFlagUrgent) == 0;
}

}  // namespace convtrace::diff

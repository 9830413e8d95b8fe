#include "tools/diff/whole/whole_runs.h"

#include <algorithm>
#include <optional>

namespace convtrace::diff {
namespace {

/// @return the offset that makes times of the trace comparable with those of other ranks.
uint64_t clock_of(const format::TraceMeta& meta) {
  return meta.start_realtime_ns - meta.start_monotonic_ns;
}

}  // namespace

const StepRecords* WholeRuns::peek(size_t side) {
  if (!has_step_[0] && !has_step_[1]) advance();
  return has_step_[side] ? &whole_[side] : nullptr;
}

void WholeRuns::advance() {
  std::optional<uint32_t> next;
  for (const Streams* run : streams_) {
    for (const auto& stream : *run) {
      const StepRecords* step = stream->peek();
      if (step != nullptr) next = std::min(next.value_or(step->step), step->step);
    }
  }
  if (!next) return;
  for (size_t side = 0; side < streams_.size(); ++side) {
    held_[side].clear();
    whole_[side].clear();
    whole_[side].step = *next;
    const Streams& streams = *streams_[side];
    std::vector<size_t> lacking;
    for (size_t i = 0; i < streams.size(); ++i) {
      const StepRecords* step = streams[i]->peek();
      if (step == nullptr || step->step != *next) {
        lacking.push_back(i);
        continue;
      }
      const format::TraceMeta& meta = streams[i]->reader().meta();
      held_[side].add(*step, meta.rank, clock_of(meta));
      has_step_[side] = true;
    }
    for (const size_t i : lacking) missing_[side][i] += has_step_[side] ? 1 : 0;
  }
  values_.put_together(held_[0], held_[1], whole_[0], whole_[1]);
  for (const Streams* run : streams_) {
    for (const auto& stream : *run) {
      const StepRecords* step = stream->peek();
      if (step != nullptr && step->step == *next) stream->pop();
    }
  }
}

}  // namespace convtrace::diff

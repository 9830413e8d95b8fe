#include "tools/origin/read/windows.h"

#include <algorithm>
#include <map>

namespace convtrace::origin {

std::vector<uint32_t> window_ends(const std::vector<RankReader>& ranks, uint64_t most_events) {
  constexpr uint32_t kSpread = 64;  // steps of one chunk that count one by one
  std::map<uint32_t, uint64_t> events;
  for (const RankReader& rank : ranks)
    for (const ChunkSpan& chunk : rank.chunks()) {
      const uint32_t steps = std::min(chunk.step_end - chunk.step_begin, kSpread - 1) + 1;
      for (uint32_t i = 0; i < steps; ++i) events[chunk.step_begin + i] += chunk.items / steps + 1;
    }
  std::vector<uint32_t> ends;
  uint64_t sum = 0;
  uint32_t last = 0;
  for (const auto& [step, count] : events) {
    if (sum != 0 && sum + count > most_events) {
      ends.push_back(last);
      sum = 0;
    }
    sum += count;
    last = step;
  }
  ends.push_back(UINT32_MAX);
  return ends;
}

}  // namespace convtrace::origin

#include "tools/origin/read/feed.h"

#include <algorithm>
#include <set>

#include "tools/origin/read/rank_reader.h"

namespace convtrace::origin {

RankFacts facts_of(const RankReader& reader) {
  RankFacts facts{.path = reader.path(),
                  .rank = reader.meta().rank,
                  .world_size = reader.meta().world_size,
                  .events = reader.events(),
                  .new_hashes = format::hashes_anew(reader.meta()),
                  .has_steps = !reader.chunks().empty(),
                  .first_step = UINT32_MAX};
  for (const ChunkSpan& chunk : reader.chunks()) {
    facts.first_step = std::min(facts.first_step, chunk.step_begin);
    facts.last_step = std::max(facts.last_step, chunk.step_end);
  }
  return facts;
}

void choose_one_a_rank(std::vector<RankFacts>& traces, std::vector<std::string>& notes) {
  std::ranges::stable_sort(traces, [](const RankFacts& a, const RankFacts& b) {
    return a.rank != b.rank       ? a.rank < b.rank
           : a.events != b.events ? a.events > b.events
                                  : a.path < b.path;
  });
  std::set<uint32_t> known;
  std::erase_if(traces, [&](const RankFacts& trace) {
    if (known.insert(trace.rank).second) return false;
    notes.push_back(trace.path + " is a further trace of rank " + std::to_string(trace.rank) +
                    ": the one with most events is read");
    return true;
  });
}

}  // namespace convtrace::origin

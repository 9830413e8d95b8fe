#include "tools/origin/trace_feed.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tools/common/on_threads.h"
#include "tools/common/text.h"
#include "tools/origin/read/rank_reader.h"
#include "tools/trace/read/trace_set.h"

namespace convtrace::origin {
namespace {

/// A thread that throws would end the program.
void read_to(RankReader& reader, uint32_t step, RankQueue& queue) noexcept {
  try {
    if (!queue.finished) reader.read_to(step, queue);
  } catch (const std::exception&) {
    queue.complete = false;
    queue.damaged = queue.finished = true;
  }
}

/// Cuts the steps of a job into windows that fit into memory.
/// @param most_events  of all ranks in a window, unless one step has more.
/// @return the last step of each window, ascending; at least one.
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

/// If a rank has several traces, as after a restart of the job, keeps the one with most events.
/// @param notes  gets a line for each that is left out.
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

}  // namespace

bool TraceFeed::open(const std::vector<std::string>& paths, OriginResult& result,
                     std::string& error) {
  std::vector<RankFacts> files;
  for (const std::string& path : paths) {
    diff::TraceSet set;
    if (!diff::open_trace_set(path, set, error)) return false;
    result.paths.push_back(path);
    result.incomplete.insert(result.incomplete.end(), set.unreadable.begin(), set.unreadable.end());
    for (const diff::TraceFile& file : set.files)
      files.push_back({.path = file.path, .rank = file.meta.rank, .events = file.events});
  }
  choose_one_a_rank(files, result.notes);
  for (const RankFacts& file : files) readers_.emplace_back(file.path, names_);
  std::vector<std::string> failures(readers_.size());
  tools::on_threads(readers_.size(), threads_, [&](size_t i) {
    const Status status = readers_[i].open();
    if (!status.ok()) failures[i] = diff::unreadable(files[i].path, tools::status_text(status));
  });
  for (const std::string& failure : failures) {
    if (failure.empty()) continue;
    error = failure;
    return false;
  }
  for (const RankReader& reader : readers_) ranks_.push_back(reader.facts());
  ends_ = window_ends(readers_, most_events_);
  return true;
}

bool TraceFeed::next(std::span<RankQueue* const> queues) {
  const uint32_t end = ends_[window_++];
  tools::on_threads(readers_.size(), threads_,
                    [&](size_t i) { read_to(readers_[i], end, *queues[i]); });
  return window_ < ends_.size();
}

}  // namespace convtrace::origin

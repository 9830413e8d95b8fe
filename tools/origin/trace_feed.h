#pragma once
/// @file trace_feed.h
/// Reads the traces of a job window by window, on several threads.
///
/// Place:     run.cpp asks for one window of steps after the other.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/model/definitions.h"
#include "tools/origin/model/result.h"
#include "tools/origin/read/rank_queue.h"
#include "tools/origin/read/rank_reader.h"

namespace convtrace::origin {

class TraceFeed {
 public:
  /// @param names  of the job; borrowed. @param most_events  of all ranks in a window.
  TraceFeed(format::Definitions& names, unsigned threads, uint64_t most_events)
      : names_(names), threads_(threads), most_events_(most_events) {}

  /// @param paths  traces, or folders of traces.
  /// @param result  gets paths, notes and lines about traces that cannot be read.
  /// @param error  one line, escaped. @return false with `error` set.
  [[nodiscard]] bool open(const std::vector<std::string>& paths, OriginResult& result,
                          std::string& error);
  /// The traces to judge, by rank, ascending; one a rank. Valid after open().
  [[nodiscard]] const std::vector<RankFacts>& ranks() const { return ranks_; }
  /// Appends the next window of steps to the queues, which are in the order of ranks().
  /// @return whether more windows come.
  [[nodiscard]] bool next(std::span<RankQueue* const> queues);

 private:
  format::Definitions& names_;
  unsigned threads_;
  uint64_t most_events_;
  std::vector<RankFacts> ranks_;
  std::vector<RankReader> readers_;  ///< by rank, ascending
  std::vector<uint32_t> ends_;       ///< last steps of windows
  size_t window_ = 0;
};

}  // namespace convtrace::origin

#pragma once
/// @file trace_feed.h
/// Reads the traces of a job window by window, on several threads.

#include <string>
#include <vector>

#include "format/model/definitions.h"
#include "tools/origin/read/feed.h"
#include "tools/origin/read/rank_reader.h"

namespace convtrace::origin {

class TraceFeed : public Feed {
 public:
  /// @param paths  traces, or folders of traces. @param names  of the job. Both borrowed.
  /// @param most_events  of all ranks in a window.
  TraceFeed(const std::vector<std::string>& paths, format::Definitions& names, unsigned threads,
            uint64_t most_events)
      : paths_(paths), names_(names), threads_(threads), most_events_(most_events) {}

  [[nodiscard]] bool open(OriginResult& result, std::string& error) override;
  [[nodiscard]] bool next(std::span<RankQueue* const> queues, bool& last,
                          std::string& error) override;

 private:
  const std::vector<std::string>& paths_;
  format::Definitions& names_;
  unsigned threads_;
  uint64_t most_events_;
  std::vector<RankReader> readers_;  ///< by rank, ascending
  std::vector<uint32_t> ends_;       ///< last steps of windows
  size_t window_ = 0;
};

}  // namespace convtrace::origin

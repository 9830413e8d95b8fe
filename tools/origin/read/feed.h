#pragma once
/// @file feed.h
/// The source of all ranks' queues: traces, or digests that were made of them elsewhere.
///
/// Place:     run.cpp asks for one window of steps after the other.
/// Threads:   one.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tools/origin/model/result.h"
#include "tools/origin/read/rank_queue.h"

namespace convtrace::origin {

class RankReader;

/// The facts of a trace that are known before its events are read.
struct RankFacts {
  std::string path;
  uint32_t rank = 0, world_size = 1;
  uint64_t events = 0;
  size_t number = 0;  ///< index of the trace in its feed
  bool new_hashes = true;
  bool has_steps = false;
  uint32_t first_step = 0, last_step = 0;
};

class Feed {
 public:
  virtual ~Feed() = default;
  /// @param result  gets paths, notes and lines about traces that cannot be read.
  /// @param error  one line, escaped. @return false with `error` set.
  [[nodiscard]] virtual bool open(OriginResult& result, std::string& error) = 0;
  /// The traces to judge, by rank, ascending; one a rank. Valid after open().
  [[nodiscard]] const std::vector<RankFacts>& ranks() const { return ranks_; }
  /// Appends the next window of steps to the queues, which are in the order of ranks().
  /// @param last  set when nothing more comes. @return false with `error` set.
  [[nodiscard]] virtual bool next(std::span<RankQueue* const> queues, bool& last,
                                  std::string& error) = 0;

 protected:
  std::vector<RankFacts> ranks_;
};

/// @param reader  was opened.
[[nodiscard]] RankFacts facts_of(const RankReader& reader);

/// If a rank has several traces, as after a restart of the job, keeps the one with most events.
/// @param traces  sorted by rank. @param notes  gets a line for each that is left out.
void choose_one_a_rank(std::vector<RankFacts>& traces, std::vector<std::string>& notes);

}  // namespace convtrace::origin

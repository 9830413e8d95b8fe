#pragma once
/// @file run.h
/// Reads the traces of all ranks of a job, window by window, and finds the origins.
///
/// Memory:   a window of steps of all ranks, their definitions' ids, and of each parameter and rank
///           16 bytes.

#include <cstdint>
#include <string>
#include <vector>

#include "tools/origin/model/result.h"

namespace convtrace::origin {

struct Limits {
  unsigned threads = 0;  ///< 0: as many as the machine has
  /// Most events of all ranks in a window of steps. Each needs about 170 bytes of memory.
  uint64_t most_events = 6'000'000;
};

/// @param paths  traces, or folders of traces, of one job.
/// @param error  one line, escaped, when a path cannot be read.
/// @return false with `error` set.
[[nodiscard]] bool find_origins(const std::vector<std::string>& paths, const Limits& limits,
                                OriginResult& result, std::string& error);

}  // namespace convtrace::origin

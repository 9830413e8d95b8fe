#pragma once
/// @file windows.h
/// Cuts the steps of a job into windows that fit into memory.

#include <cstdint>
#include <vector>

#include "tools/origin/read/rank_reader.h"

namespace convtrace::origin {

/// @param most_events  of all ranks in a window, unless one step has more.
/// @return the last step of each window, ascending; at least one.
[[nodiscard]] std::vector<uint32_t> window_ends(const std::vector<RankReader>& ranks,
                                                uint64_t most_events);

}  // namespace convtrace::origin

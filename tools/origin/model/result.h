#pragma once
/// @file result.h
/// The result of `convtrace origin` for a job, independent of the output format.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/origin/model/origin.h"

namespace convtrace::origin {

/// A cell of the matrix of ranks by steps, from good to bad.
enum class CellState : uint8_t { kUnknown, kClean, kReceived, kOrigin };

struct OriginResult {
  std::vector<std::string> paths;
  std::map<uint32_t, std::string> traces;  ///< paths by rank, for commands that a report proposes
  std::vector<Origin> origins;             ///< first first
  std::vector<uint32_t> ranks;             ///< with a trace, ascending
  uint32_t world_size = 0;
  uint64_t steps = 0;  ///< with records, of all ranks together
  uint64_t collectives = 0, transfers = 0;
  uint64_t joined = 0;  ///< collectives and transfers of which all members were read
  uint64_t values = 0;  ///< values that collectives sent and received
  uint64_t origins_left_out = 0;
  uint32_t first_step = 0;
  std::vector<std::vector<CellState>> cells;  ///< for each rank, by step - first_step
  std::vector<std::string> notes;             ///< parts not judged, and why; not escaped
  std::vector<std::string> incomplete;        ///< lines about traces, escaped
};

}  // namespace convtrace::origin

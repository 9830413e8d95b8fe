#pragma once
/// @file rules.h
/// The user's options for a comparison: names that mean the same, and tolerances.
///
/// Place:    read from the command line and the file of `--map` (map_file.h); used by rank_diff.h.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "tools/diff/model/scope_map.h"
#include "tools/diff/model/tolerance.h"

namespace convtrace::diff {

/// Whether any difference of bits counts. kAuto: it counts if nothing else differs between the runs
/// and they can repeat their bits.
enum class ExactChoice : uint8_t { kAuto, kOn, kOff };

struct DiffRules {
  std::vector<ScopeRename> renames;  ///< the first that matches is used
  /// By rank of the candidate; other ranks keep their numbers.
  std::map<uint32_t, uint32_t> base_rank;
  std::vector<ToleranceRule> tolerances;  ///< the last that matches is used
  std::vector<ToleranceRule> ignored;     ///< values that may differ by any amount
  ExactChoice exact = ExactChoice::kAuto;
  std::optional<int64_t> step_offset{};  ///< step of the candidate - step of the baseline
};

}  // namespace convtrace::diff

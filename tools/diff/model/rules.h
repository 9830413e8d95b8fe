#pragma once
/// @file rules.h
/// What the user says about the two runs: which names mean the same, and how far values may differ.
///
/// Place:    read from the command line and the file of `--map` (map_file.h); used by rank_diff.h.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "tools/diff/model/scope_map.h"
#include "tools/diff/model/tolerance.h"

namespace convtrace::diff {

/// Whether any difference of bits counts. kAuto: where nothing differs between the runs and they
/// can repeat.
enum class ExactChoice : uint8_t { kAuto, kOn, kOff };

struct DiffRules {
  std::vector<ScopeRename> renames;        ///< the first that fits is taken
  std::map<uint32_t, uint32_t> base_rank;  ///< of a rank of the candidate; others keep theirs
  std::vector<ToleranceRule> tolerances;   ///< the last that fits is taken
  std::vector<ToleranceRule> ignored;      ///< what may differ in any way
  ExactChoice exact = ExactChoice::kAuto;
  std::optional<int64_t> step_offset{};  ///< step of the candidate - step of the baseline
};

}  // namespace convtrace::diff

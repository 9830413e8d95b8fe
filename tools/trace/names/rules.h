#pragma once
/// @file rules.h
/// The user's options for a comparison: names that mean the same, and tolerances.
///
/// Place:    read from the command line and the file of `--map` (map_file.h); used by rank_diff.h.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "tools/trace/names/renames.h"
#include "tools/trace/names/tolerance.h"

namespace convtrace::diff {

/// The choice of whether any difference of bits counts. kAuto: it counts if nothing else differs
/// between the runs and both are deterministic.
enum class ExactChoice : uint8_t { kAuto, kOn, kOff };

/// How full-size values that differ between ranks are combined into the job's value.
enum class Reduction : uint8_t {
  kNone,  ///< not at all: unlike values are pieces
  kMean,
  kSum  ///< the sum of the unlike values; equal ones are copies
};
struct ReductionRule {
  settings::Pattern pattern;  ///< matches a module path, op, kernel, kernel family or slot
  Reduction reduction = Reduction::kMean;
};

/// The order of an activation's first dimensions in the candidate; the others keep their places.
struct DimensionRule {
  settings::Pattern pattern;
  std::vector<size_t> order;  ///< numbers of the baseline's dimensions
};

/// The choice between comparing single ranks and comparing the combined values of all ranks.
/// kAuto: combined values if the runs divide their work among ranks differently.
enum class LayoutChoice : uint8_t { kAuto, kRanks, kWhole };

struct DiffRules {
  std::vector<ScopeRename> renames;  ///< the first that matches is used
  /// Names of parameters in either run: `cand` is compared as `base`; the first that matches is
  /// used
  std::vector<ScopeRename> moved{};
  std::vector<DimensionRule> dimensions{};  ///< the last that matches is used
  FusedNames fused = usual_fused_names();
  /// By rank of the candidate; other ranks keep their numbers.
  std::map<uint32_t, uint32_t> base_rank;
  std::vector<ToleranceRule> tolerances;    ///< the last that matches is used
  std::vector<ToleranceRule> ignored;       ///< values that may differ by any amount
  std::vector<ReductionRule> reductions{};  ///< the last that matches is used
  ExactChoice exact = ExactChoice::kAuto;
  LayoutChoice layouts = LayoutChoice::kAuto;
  std::optional<int64_t> step_offset{};  ///< step of the candidate - step of the baseline
};

}  // namespace convtrace::diff

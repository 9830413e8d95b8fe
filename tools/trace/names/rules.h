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

/// Choice whether any difference of bits counts. kAuto: it counts if nothing else differs between the runs
/// and they can repeat their bits.
enum class ExactChoice : uint8_t { kAuto, kOn, kOff };

/// How values that ranks hold in full, and unlike, make the value of the job.
enum class Reduction : uint8_t {
  kNone,  ///< not at all: unlike values are pieces
  kMean,
  kSum  ///< of the unlike values: equal ones are copies
};
struct ReductionRule {
  settings::Pattern pattern;  ///< of module path, op, kernel, kernel family or slot
  Reduction reduction = Reduction::kMean;
};

/// In which order the candidate has the first dimensions of an activation; the rest stay.
struct DimensionRule {
  settings::Pattern pattern;
  std::vector<size_t> order;  ///< numbers of the baseline's dimensions
};

/// Choice whether ranks are compared with ranks, or what all ranks of a run hold, put together. kAuto: put
/// together if the runs divide their work among ranks in two ways.
enum class LayoutChoice : uint8_t { kAuto, kRanks, kWhole };

struct DiffRules {
  std::vector<ScopeRename> renames;  ///< the first that matches is used
  /// Names of parameters in either run: `cand` is compared as `base`; the first that matches is used
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

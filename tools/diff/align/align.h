#pragma once
/// @file align.h
/// Pairs the records of two runs within one (rank, step).
///
/// Records are paired by stable key first, with the baseline's names of modules (scope_map.h). Then
/// launches with equal keys that the runs made in different orders are paired by their values. The
/// rest of a module call is paired by sequence: other kernels for the same work, or one fused
/// kernel in place of several.
///
/// Threads:  pure functions.
/// Source:   docs/comparison.md "Alignment".

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tools/diff/model/scope_map.h"
#include "tools/trace/model/record.h"

namespace convtrace::diff {

/// The ways to find a match, the most certain first.
#define CONVTRACE_DIFF_MATCHED_BY(X)                              \
  X(kStableKey, "stable key")                                     \
  X(kOccurrence, "stable key and occurrence")                     \
  X(kReordered, "value among launches of one stable key")         \
  X(kRenamedModule, "stable key in a module of another name")     \
  X(kSequence, "place among what only one run has of its module") \
  X(kRegionEnd, "end of a region with other operations")

#define CONVTRACE_X(name, text) name,
enum class MatchedBy : uint8_t { CONVTRACE_DIFF_MATCHED_BY(CONVTRACE_X) };
#undef CONVTRACE_X
[[nodiscard]] std::string_view to_string(MatchedBy value);

struct Match {
  uint32_t base = 0;  ///< index into the base step's values
  uint32_t cand = 0;
  MatchedBy how = MatchedBy::kStableKey;
  float confidence = 1;
};
/// A match with less confidence is a guess, which only equal values confirm.
inline constexpr float kLeastConfidence = 0.5F;

/// What has no counterparts in a step in which one run makes more backward passes (passes.h).
enum class Parted : uint8_t {
  kNothing,
  kPasses,  ///< what single backward passes compute
  kCalls    ///< that, and what single calls of modules take and compute
};

struct Alignment {
  /// In execution order. Two matches whose order is the same in both runs have that order here,
  /// too. Exchanging the runs gives the same list.
  std::vector<Match> matches;
  std::vector<uint32_t> base_only, cand_only;  ///< ascending
  uint64_t base_passes = 0, cand_passes = 0;   ///< backward passes (passes.h)
  Parted parted = Parted::kNothing;
};

/// Pairs by stable key alone, for two runs of the same program.
[[nodiscard]] Alignment align(std::span<const ValueRecord> base, std::span<const ValueRecord> cand);
[[nodiscard]] Alignment align(std::span<const ValueRecord> base, std::span<const ValueRecord> cand,
                              const ScopeMap& scopes);

/// Puts matches into the order of Alignment::matches.
void sort_by_execution(Alignment& alignment, std::span<const ValueRecord> base,
                       std::span<const ValueRecord> cand);

/// Removes matches. @param holds  for each match, whether it stays.
void drop_matches(Alignment& alignment, const std::vector<bool>& holds);

}  // namespace convtrace::diff

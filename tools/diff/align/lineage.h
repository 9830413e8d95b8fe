#pragma once
/// @file lineage.h
/// Follows values from the record that produced them to the records that used them, within one step
/// of each run. Finds values that changed in between in one run only.
///
/// Threads:  pure functions.
/// Source:   docs/comparison.md "Verdict"; format::ValueId.

#include <cstdint>
#include <vector>

#include "tools/diff/align/align.h"
#include "tools/trace/model/record.h"

namespace convtrace::diff {

inline constexpr uint32_t kNoMatch = UINT32_MAX;

/// In one of the two runs a consumer read other bytes than its producer wrote.
struct ChangedBetween {
  uint32_t producer = 0;  ///< index into Alignment::matches
  uint32_t consumer = 0;  ///< index into Alignment::matches, after `producer`
  bool in_cand = false;   ///< the run in which the value changed
  bool by_op = false;     ///< between two records of one op's operand: the op has written it
};

struct Lineage {
  /// For each match, the match whose value it uses unchanged in both runs, or kNoMatch.
  std::vector<uint32_t> seen_from;
  /// Ordered by consumer.
  std::vector<ChangedBetween> changed;
};

/// @return for each record of `step` the first record of the same value; kNoMatch for the first
/// itself.
[[nodiscard]] std::vector<uint32_t> producers_of(const StepRecords& step);

[[nodiscard]] Lineage trace_lineage(const StepRecords& base, const StepRecords& cand,
                                    const Alignment& alignment);

}  // namespace convtrace::diff

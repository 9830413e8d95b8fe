#pragma once
/// @file passes.h
/// Steps in which one run makes more backward passes than the other: calls and passes of one number
/// are then no partners. Parameters' gradients are sums over all passes, so they stay comparable.
///
/// Place:    rank_diff.h, after the alignment of a step.
/// Threads:  pure functions.
/// Source:   docs/comparison.md "Alignment".

#include "tools/diff/align/align.h"

namespace convtrace::diff {

/// @return whether a value has no counterpart, or only one of equal value, as a loss.
[[nodiscard]] bool is_parted(const ValueRecord& record, Parted parted);

/// Counts the passes: each begins with a loss. If one run makes more of them, pairs losses by their values alone, and
/// parts what single passes compute. If the step's batch is divided into another number of calls,
/// it parts what these calls take and compute, too.
void part_passes(const StepRecords& base, const StepRecords& cand, Alignment& alignment);

}  // namespace convtrace::diff

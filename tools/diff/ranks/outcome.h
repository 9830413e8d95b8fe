#pragma once
/// @file outcome.h
/// Takes what the comparison of a rank's steps found into the rank's part of the report.
///
/// Place:    diff.h, after each rank's comparison.
/// Threads:  plain functions.

#include "tools/diff/ranks/rank_part.h"
#include "tools/diff/verdict/rank_diff.h"
#include "tools/trace/read/trace_set.h"

namespace convtrace::diff {

/// Compares facts up to the root: later differences cannot be its cause.
void compare_facts(const TraceFile& base, const TraceFile& cand, const RankOutcome& outcome,
                   RankPart& part);

/// @param base_cut, cand_cut  whether a trace may end within its last step
void take_outcome(RankOutcome outcome, bool base_cut, bool cand_cut, RankPart& part);

}  // namespace convtrace::diff

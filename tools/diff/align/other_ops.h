#pragma once
/// @file other_ops.h
/// Finds the module calls in which the two runs execute other sequences of ops, as in a rewritten
/// module. There, ops of one name may do unlike work: `att * scale` and `q * scale`.
///
/// Threads:  pure functions.
/// Source:   docs/comparison.md "Alignment".

#include <vector>

#include "tools/diff/align/align.h"

namespace convtrace::diff {

/// The ops of one module call, in the order in which the runs called them.
struct OtherOps {
  format::StringId scope;  ///< the baseline's name
  format::Phase phase = format::Phase::kForward;
  std::vector<format::StringId> base, cand;
};

/// Removes the matches of operands of ops in calls whose sequences of ops differ, except those
/// whose values agree: only they are known to be the same value.
/// @return these calls, in execution order.
std::vector<OtherOps> part_other_ops(const StepRecords& base, const StepRecords& cand,
                                     const ScopeMap& scopes, Alignment& alignment);

}  // namespace convtrace::diff

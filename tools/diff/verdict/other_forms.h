#pragma once
/// @file other_forms.h
/// Inputs of which the runs have another type or shape: a mask that was added and is now a choice.
/// That is a difference to tell. Whether it matters say the outputs of the calls that took them.
///
/// Place:    rank_diff.h, behind the last comparison of a step.
/// Threads:  pure functions.

#include <span>
#include <vector>

#include "tools/diff/align/align.h"
#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// Makes kOtherForm of the mismatched inputs of calls that gave outputs of which none diverged.
/// @param base  the values of the baseline's step. @param comparisons  one per match.
void excuse_other_forms(std::span<const ValueRecord> base, std::span<const Match> matches,
                        std::span<Comparison> comparisons);

/// Adds an input to those of the same slot, types and shapes; at most kMaxOtherForms of them.
void add_other_form(std::vector<OtherForm>& all, OtherForm one);

}  // namespace convtrace::diff

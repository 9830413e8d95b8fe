#pragma once
/// @file other_forms.h
/// Inputs of which the runs have another type or shape: a mask that was added and is now a choice.
/// The report tells of it. The outputs of the calls that took such an input decide whether it
/// matters.
///
/// Place:    rank_diff.h, after the last comparison of a step.
/// Threads:  pure functions.

#include <span>
#include <vector>

#include "tools/diff/align/align.h"
#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// Sets the verdict of mismatched inputs to kOtherForm where the call has outputs and none
/// diverged.
/// @param base  the values of the baseline's step. @param comparisons  one per match.
void excuse_other_forms(std::span<const ValueRecord> base, std::span<const Match> matches,
                        std::span<Comparison> comparisons);

/// Adds an input to those of the same slot, types and shapes; at most kMaxOtherForms of them.
void add_other_form(std::vector<OtherForm>& all, OtherForm one);

}  // namespace convtrace::diff

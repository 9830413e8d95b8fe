#pragma once
/// @file other_forms.h
/// Handles inputs that have another form in the other run: another type or shape, such as a float
/// mask that became boolean, or labels that were padded. The report lists them. The outputs of the
/// calls that took such an input decide whether it matters.
///
/// Place:    rank_diff.h, after the last comparison of a step.
/// Threads:  pure functions.

#include <span>
#include <vector>

#include "tools/diff/align/align.h"
#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// Sets the verdict of mismatched inputs to kOtherForm if the call has outputs and none diverged.
/// @param base  the values of the baseline's step. @param comparisons  one per match.
void excuse_other_forms(std::span<const ValueRecord> base, std::span<const Match> matches,
                        std::span<Comparison> comparisons);

/// Sets the verdict of values of another shape to kOtherForm where a call around them shows what was
/// made of them: it was given equal values and gives out values of one shape, and nothing in it that
/// could be compared has diverged. Experts that are given their own rows, or all rows, are such.
/// @param comparisons  one per match, in execution order.
void excuse_inner_forms(std::span<const ValueRecord> base, std::span<const Match> matches,
                        std::span<Comparison> comparisons);

/// Sets the verdict of a loss's inputs to kOtherForm where the loss and the output gradients after
/// it show that they are equivalent: labels that were padded, cut or flattened, or that ignore
/// another index. For inputs of one shape the loss and these gradients must have identical bits.
/// @param comparisons  one per match, in execution order.
void excuse_targets(std::span<const ValueRecord> base, std::span<const Match> matches,
                    std::span<Comparison> comparisons);

/// Counts an input with those of the same slot, types and shapes; at most kMaxOtherForms groups.
void add_other_form(std::vector<OtherForm>& all, OtherForm one);

}  // namespace convtrace::diff

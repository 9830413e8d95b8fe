#pragma once
/// @file graded_calls.h
/// Gives calls in evaluation mode the phase of training if the step's backward pass reached them.
///
/// The observer finds out that a program trains in evaluation mode from the second such step on; in
/// the first one the calls have the phase evaluation.

#include "format/model/definitions.h"
#include "tools/trace/model/record.h"

namespace convtrace::diff {

/// @param[in,out] step  in order of execution; keys without occurrences. Calls of modules
/// that the step also has in the forward phase are not changed.
void retrain_graded_calls(StepRecords& step, const format::Definitions& names);

}  // namespace convtrace::diff

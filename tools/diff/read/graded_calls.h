#pragma once
/// @file graded_calls.h
/// Gives calls of a model in evaluation mode the phase of training where the step's backward pass reached them.
///
/// The observer knows that a program trains in evaluation mode from the second such step on; in the
/// first one the calls have phase evaluation.

#include "format/model/definitions.h"
#include "tools/trace/model/record.h"

namespace convtrace::diff {

/// @param[in,out] step  in order of execution; keys without occurrences. Calls of modules
/// that the step has in the forward phase, too, stay as they are.
void retrain_graded_calls(StepRecords& step, const format::Definitions& names);

}  // namespace convtrace::diff

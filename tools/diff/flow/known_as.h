#pragma once
/// @file known_as.h
/// What memory is that a collective, an op or a kernel used outside of modules: a parameter, its
/// gradient, a buffer. Another record of the same memory in the same step has the name.
///
/// Threads:  pure function.

#include "tools/diff/model/record.h"

namespace convtrace::diff {

/// @return the first record of the step that has a parameter's name for the memory of `values[index]`;
/// null if that one is a module's own value, or its memory has no such name.
[[nodiscard]] const ValueRecord* known_as(const StepRecords& step, uint32_t index);

}  // namespace convtrace::diff

#pragma once
/// @file step_sums.h
/// Reads the sums of a trace's steps. Equal sums in two traces mean equal launches and values, so a
/// comparison need not read such a step.
///
/// Place:    over trace_container.h. A closed trace has all sums in one place. In other traces this
///           reads the sums that were written along the way, and the chunks after the last of them.
/// Errors:   none: a step that lost events has smaller sums, never those of another step.
/// Source:   format/FORMAT.md section 6.7.

#include <cstdint>
#include <vector>

#include "format/file/columns/step_sums.h"
#include "reader/trace_container.h"

namespace convtrace::reader {

/// @return one entry for each step that has launches or values, ascending; kNoStep is the last.
[[nodiscard]] std::vector<format::StepSums> load_step_sums(const TraceContainer& container);

/// @param sums  ascending by step, borrowed. @return those of the step; null if there are none.
[[nodiscard]] const format::StepSums* find_step(const std::vector<format::StepSums>& sums,
                                                uint32_t step);

}  // namespace convtrace::reader

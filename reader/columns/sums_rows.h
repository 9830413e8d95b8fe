#pragma once
/// @file sums_rows.h
/// Step sums as they are stored, in EVENTS and in SUMS payloads.
///
/// Place:    event_decoder.cpp, metadata_decoder.cpp; format/file/columns/sums_columns.h is its
///           mirror.
/// Source:   format/FORMAT.md section 6.7.

#include <vector>

#include "format/file/columns/step_sums.h"
#include "format/schema/sums_generated.h"

namespace convtrace::reader {

/// Appends what `from`, which is verified, says.
/// @return whether all of it fits together; else nothing is appended.
[[nodiscard]] bool append_sums(const format::wire::StepSums& from,
                               std::vector<format::StepSums>& to);

}  // namespace convtrace::reader

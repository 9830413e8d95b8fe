#pragma once
/// @file sums_rows.h
/// Decodes step sums from EVENTS and SUMS payloads.
///
/// Place:    event_decoder.cpp, metadata_decoder.cpp; format/file/columns/step_sums.h is its
///           mirror.
/// Source:   format/FORMAT.md section 6.7.

#include <vector>

#include "format/file/columns/step_sums.h"
#include "format/schema/sums_generated.h"

namespace convtrace::reader {

/// Appends the sums of `from`, which is verified.
/// @return whether they are consistent; if not, nothing is appended.
[[nodiscard]] bool append_sums(const format::wire::StepSums& from,
                               std::vector<format::StepSums>& to);

}  // namespace convtrace::reader

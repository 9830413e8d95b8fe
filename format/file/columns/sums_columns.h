#pragma once
/// @file sums_columns.h
/// Step sums as they are stored, in EVENTS and in SUMS payloads.
///
/// Place:    event_encoder.cpp, metadata_encoder.cpp; reader/step_sums.h is its mirror.
/// Source:   format/FORMAT.md section 6.7.

#include <memory>
#include <span>

#include "format/file/columns/step_sums.h"

namespace convtrace::format {

namespace wire {
struct StepSumsT;
}

/// @return nothing when there are none.
[[nodiscard]] std::unique_ptr<wire::StepSumsT> pack(std::span<const StepSums> sums);

}  // namespace convtrace::format

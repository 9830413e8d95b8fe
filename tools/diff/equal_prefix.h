#pragma once
/// @file equal_prefix.h
/// The steps at the beginning of two traces that need not be read: their sums say that both hold
/// the same launches and values.
///
/// Threads:  pure functions.
/// Source:   reader/step_sums.h.

#include <optional>
#include <vector>

#include "format/layout.h"
#include "format/step_sums.h"
#include "reader/trace_reader.h"

namespace convtrace::diff {

/// @return the sums of all steps before the first that differs; empty where the sums cannot be
/// relied on: of an unclosed or damaged trace, or where events of no known step lie between.
[[nodiscard]] std::vector<format::StepSums> equal_prefix(const reader::TraceReader& base,
                                                         const reader::TraceReader& cand);

/// @return whether a chunk holds nothing but events of steps up to `last`, and no error finding.
[[nodiscard]] bool lies_in_prefix(const format::RecordHeader& chunk, uint32_t last);

}  // namespace convtrace::diff

#pragma once
/// @file fused_calls.h
/// Parts pairs of fused kernels that have one name and are not made of the same operations.
///
/// A compiler names a kernel by what it fused, and numbers its operands. Where two runs fused
/// differently, one name and one number may be different values.
///
/// Place:     called by align.h after records were matched by their keys.
/// Threads:   plain functions.

#include <span>

#include "tools/diff/align/align.h"
#include "tools/trace/model/record.h"

namespace convtrace::diff {

/// Takes apart the matches of a fused kernel's call whose operands are not as many, or not of the
/// same types and sizes, in both runs.
void part_unlike_fusions(Alignment& alignment, std::span<const ValueRecord> base,
                         std::span<const ValueRecord> cand);

}  // namespace convtrace::diff

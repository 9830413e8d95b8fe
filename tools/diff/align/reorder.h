#pragma once
/// @file reorder.h
/// Launches of one key that the runs made in another order: several streams or threads that launch
/// the same kernel take turns as they like, and kernels that do not depend on each other run in any
/// order.
///
/// Threads:  pure functions.

#include <span>

#include "tools/diff/align/align.h"

namespace convtrace::diff {

/// Exchanges partners among matches of raw kernels of one key: first so that equal values meet,
/// then so that values meet which differ by rounding alone. A value like none of the other run
/// keeps its place. Streams are not asked: a handle says nothing in another run.
void undo_reordering(Alignment& alignment, std::span<const ValueRecord> base,
                     std::span<const ValueRecord> cand);

}  // namespace convtrace::diff

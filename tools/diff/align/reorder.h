#pragma once
/// @file reorder.h
/// Pairs launches of one key that the runs made in different orders. Several streams or threads
/// that launch the same kernel alternate arbitrarily, and kernels that do not depend on each other
/// may run in any order.
///
/// Threads:  pure functions.

#include <span>

#include "tools/diff/align/align.h"

namespace convtrace::diff {

/// Exchanges partners among matches of raw kernels of one key: first to pair equal values, then to
/// pair values that differ by rounding alone. A value that is like none of the other run keeps its
/// partner. Streams are ignored, since their handles mean nothing in another run.
void undo_reordering(Alignment& alignment, std::span<const ValueRecord> base,
                     std::span<const ValueRecord> cand);

/// If one run has more losses of one key in a step, exchanges partners so that equal ones are
/// paired.
void pair_losses(Alignment& alignment, std::span<const ValueRecord> base,
                 std::span<const ValueRecord> cand);

}  // namespace convtrace::diff

#pragma once
/// @file reorder.h
/// Pairs launches and backward passes that the runs made in different orders. Several streams or
/// threads that launch the same kernel alternate arbitrarily, kernels that do not depend on each
/// other may run in any order, and so may the backward passes of several losses.
///
/// Threads:  pure functions.

#include <span>

#include "tools/diff/align/align.h"

namespace convtrace::diff {

/// Exchanges partners among matches of raw kernels of one key, among losses, and, where losses were
/// exchanged, among what single backward passes compute in one place: first to pair equal values, then to
/// pair values that differ by rounding alone. A value that is like none of the other run keeps its
/// partner. Streams are ignored, since their handles mean nothing in another run.
void undo_reordering(Alignment& alignment, std::span<const ValueRecord> base,
                     std::span<const ValueRecord> cand);

/// @return whether the statistics of two records differ by no more than rounding.
[[nodiscard]] bool alike(const ValueRecord& a, const ValueRecord& b);

}  // namespace convtrace::diff

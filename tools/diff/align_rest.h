#pragma once
/// @file align_rest.h
/// The parts of align.h that are needed where the runs did not launch the same kernels in the same
/// order.
///
/// Threads:  pure functions.

#include "tools/diff/align.h"

namespace convtrace::diff {

/// Kernels that do not depend on each other run in any order, so that the how-manieth launch of a
/// key is another one in each run: of the matches whose values differ, those are exchanged that
/// then agree.
void undo_reordering(Alignment& alignment, std::span<const ValueRecord> base,
                     std::span<const ValueRecord> cand);

/// Pairs what stable keys left over inside one call of one module, in sequence.
void align_rest(Alignment& alignment, std::span<const ValueRecord> base,
                std::span<const ValueRecord> cand, const ScopeMap& scopes);

}  // namespace convtrace::diff

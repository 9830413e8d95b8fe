#pragma once
/// @file align_rest.h
/// The part of align.h that is needed where the runs did not launch the same kernels.
///
/// Threads:  pure functions.

#include "tools/diff/align/align.h"

namespace convtrace::diff {

/// Pairs what stable keys left over inside one call of one module, in sequence.
void align_rest(Alignment& alignment, std::span<const ValueRecord> base,
                std::span<const ValueRecord> cand, const ScopeMap& scopes);

}  // namespace convtrace::diff

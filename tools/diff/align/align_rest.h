#pragma once
/// @file align_rest.h
/// The part of align.h for runs that launch different kernels.
///
/// Threads:  pure functions.

#include "tools/diff/align/align.h"

namespace convtrace::diff {

/// Pairs, in sequence, the records of one call of one module that have no partner by stable key.
void align_rest(Alignment& alignment, std::span<const ValueRecord> base,
                std::span<const ValueRecord> cand, const ScopeMap& scopes);

}  // namespace convtrace::diff

#pragma once
/// @file odd_rank.h
/// Which one rank holds a part of a whole value that is no part of the other run's value.
///
/// Statistics of a whole do not say which of its pieces is off, unless one has what the whole of the
/// other run has nowhere: more NaNs or zeros, an element beyond its extrema, a larger norm. Of
/// copies it is the one that is unlike all others.
///
/// Place:    whole_values.h.
/// Threads:  pure functions.

#include "tools/diff/whole/held.h"

namespace convtrace::diff {

/// @param pieces  one of each rank. @param factor  by which they are multiplied
/// @param other  of the other run's whole value
[[nodiscard]] OddRank odd_piece(const std::vector<Held>& pieces, double factor,
                                const format::Stats& other);

/// @return the rank whose copy is unlike those of all others, which are equal, or equal to the other
/// run's copies.
[[nodiscard]] OddRank odd_copy(const HeldValue& value, const HeldValue& partner);

}  // namespace convtrace::diff

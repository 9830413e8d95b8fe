#pragma once
/// @file pieces.h
/// Statistics of a tensor from those of its pieces, which ranks hold.
///
/// Place:    whole_values.h, and `convtrace weights`.
/// Threads:  pure functions.
/// Source:   docs/comparison.md "Other layouts"; which statistics add up: format/model/stats.h.

#include <span>

#include "format/model/dtype.h"
#include "format/model/stats.h"

namespace convtrace::diff {

/// Adds a piece to a tensor: counts and sums are added, extrema are the extremes. The tensor has no
/// hash (0) and no sketch any more: both depend on where an element stands.
void add_piece(format::DType dtype, format::Stats& whole, const format::Stats& piece);

/// Multiplies all elements of a float tensor.
void scale(format::Stats& stats, double factor);

/// @return the statistics of the mean of float tensors of one size, element by element. Sums and
/// sketches are linear; of more than one element norms and extrema are not known: NaN.
/// @pre at least one tensor; tensors of more than one element are finite.
[[nodiscard]] format::Stats mean_of(std::span<const format::Stats> tensors);

}  // namespace convtrace::diff

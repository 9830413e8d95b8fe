#pragma once
/// @file distance.h
/// The distance of two tensors by their sketches, and the distance that rounding alone causes.
///
/// Threads:  pure functions.
/// Source:   format/FORMAT.md "Sketches".

#include "format/model/dtype.h"
#include "format/model/stats.h"

namespace convtrace::diff {

/// Unit roundoff: half the distance from 1 to the next number. 0 for integers: they are exact.
[[nodiscard]] double unit_roundoff(format::DType dtype);

/// @return the norm of the differences of the buckets: its square has the expectation |a - b|^2.
/// Both sketches are known.
[[nodiscard]] double sketched_distance(const format::Sketch& a, const format::Sketch& b);

}  // namespace convtrace::diff

#pragma once
/// @file image.h
/// Arithmetic of fingerprints, and how exact a sum of numbers of a type is.
///
/// Threads:  pure functions.
/// Source:   format/FORMAT.md 6.9 for sketches; N. Higham, "Accuracy and Stability of Numerical
///           Algorithms" (2002), section 4.2, for the error of a sum.

#include <cstdint>
#include <span>

#include "tools/origin/model/call.h"

namespace convtrace::origin {

[[nodiscard]] Image image_of(const Fingerprint& fingerprint);
[[nodiscard]] double norm_of(const Image& image);
[[nodiscard]] double product_of(const Image& a, const Image& b);
/// a + factor * b
[[nodiscard]] Image added(const Image& a, const Image& b, double factor);

/// @return the unit roundoff of a type in which programs add; 0 of others.
[[nodiscard]] double roundoff_of_sums(format::DType dtype);

/// @return what an image of the sum of `parts` may be off by, rounding alone: whatever the order of
/// the additions, each of them in `dtype`, and of the sketches themselves.
/// @param count  elements.
[[nodiscard]] double sum_tolerance(std::span<const Image> parts, const Image& sum,
                                   format::DType dtype, uint64_t count);

/// The explanation of a difference by one member's contribution.
struct Fit {
  size_t member = 0;
  double factor = 0;       ///< difference = factor * contribution + rest
  double rest = 0;         ///< norm of the rest, relative to the difference
  double second_rest = 1;  ///< the same for the second best member
};
/// @pre `parts` is not empty.
[[nodiscard]] Fit fit_of(const Image& difference, std::span<const Image> parts);

}  // namespace convtrace::origin

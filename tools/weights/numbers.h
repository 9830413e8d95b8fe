#pragma once
/// @file numbers.h
/// Compares the numbers of two parameters by their records.
///
/// Threads:  pure functions.

#include <optional>
#include <string>

#include "tools/weights/weights.h"

namespace convtrace::weights {

enum class Alike : uint8_t { kBits, kNumbers, kCast, kNotKnown, kReordered, kUnlike };

/// @param hashes  the hashes of both programs can be compared.
[[nodiscard]] Alike alike(const Whole& a, const Whole& b, bool hashes);

/// @return the difference, to follow the word "differs": ": l2 1.5 in A, 1.6 in B".
/// @param distance  of the two, if it is known. @pre equal numbers of elements
[[nodiscard]] std::string difference_text(const Whole& a, const Whole& b,
                                          std::optional<double> distance);

/// @return the root mean square of their differences, relative to that of the first; nullopt:
/// unknown.
[[nodiscard]] std::optional<double> distance(const Whole& a, const Whole& b);

}  // namespace convtrace::weights

#pragma once
/// @file numbers.h
/// Whether two parameters have the same numbers, by what is recorded of them.
///
/// Threads:  pure functions.

#include <optional>

#include "tools/weights/weights.h"

namespace convtrace::weights {

enum class Alike : uint8_t { kBits, kNumbers, kCast, kNotKnown, kReordered, kUnlike };

/// @param hashes  the hashes of both programs can be compared.
[[nodiscard]] Alike alike(const Whole& a, const Whole& b, bool hashes);

/// @return the root mean square of their differences by that of the first; nullopt: not known.
[[nodiscard]] std::optional<double> distance(const Whole& a, const Whole& b);

}  // namespace convtrace::weights

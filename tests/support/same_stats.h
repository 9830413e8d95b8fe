#pragma once
/// @file same_stats.h
/// Statistics compared bit by bit.

#include <cstddef>
#include <cstring>

#include "format/model/stats.h"

namespace convtrace::test {

/// Equal to the last bit, including NaNs. Padding between the members of a sketch is ignored.
inline bool same_bits(const format::Stats& a, const format::Stats& b) {
  return std::memcmp(&a, &b, offsetof(format::Stats, sketch)) == 0 &&
         a.sketch.exponent == b.sketch.exponent &&
         std::memcmp(&a.sketch.bucket, &b.sketch.bucket, sizeof a.sketch.bucket) == 0;
}

}  // namespace convtrace::test

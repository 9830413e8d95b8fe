#pragma once
/// @file sketched.h
/// Sketches as FORMAT.md defines them, one element after the other, and what they tell.

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "format/model/stats.h"

namespace convtrace::stats::test {

struct PlainPlace {
  uint32_t bucket;
  int sign;
};

/// The bucket and the sign of the first `count` elements, from the text of FORMAT.md alone.
inline std::vector<PlainPlace> plain_places(uint64_t count, uint32_t signs = 0x9E3779B9,
                                            uint32_t places = 0x7F4A7C15) {
  std::vector<PlainPlace> made;
  for (uint64_t i = 0; i < count; ++i) {
    if (i != 0 && i % 4 == 0) signs = 1664525 * signs + 1013904223;
    if (i != 0 && i % 512 == 0) places = 1664525 * places + 1013904223;
    const uint64_t place = (i / 16 + 4 * (i / 128) + (places >> 29)) % 8;
    made.push_back(
        {static_cast<uint32_t>(8 * (i % 2) + place), (signs >> (31 - i % 4)) % 2 == 0 ? 1 : -1});
  }
  return made;
}

using Buckets = std::array<double, format::Sketch::kBuckets>;

inline Buckets sums_of(const format::Sketch& sketch) {
  Buckets sums{};
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = std::ldexp(static_cast<double>(sketch.bucket[i]), sketch.exponent);
  return sums;
}

/// @return the root of the sum of squares, which estimates that of the elements.
inline double length_of(const Buckets& sums) {
  double squares = 0;
  for (const double sum : sums) squares += sum * sum;
  return std::sqrt(squares);
}

}  // namespace convtrace::stats::test

// Part of cpu_tile_impl.h: lanes of vectors added up, or made one by another operation.
#pragma once

#include <cstring>

#include "cupti/stats/cpu/simd.h"

namespace convtrace::stats {
namespace {

/// @return sums of lanes 2i and 2i + 1: of `a`, then of `b`.
CONVTRACE_INLINE F64s sum_neighbours(F64s a, F64s b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14) +
         __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
#else
  return __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
#endif
}

/// @return sums of lanes 4i and 4i + 2, and of 4i + 1 and 4i + 3: of `a`, then of `b`.
CONVTRACE_INLINE F64s sum_second_neighbours(F64s a, F64s b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13) +
         __builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15);
#else
  return __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
#endif
}

/// @return the sum of the lanes of each vector.
CONVTRACE_INLINE U64s sums_of_each(const U64s (&v)[kWide]) {
  const auto neighbours = [](U64s a, U64s b) {
#if defined(__AVX512F__)
    return __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14) +
           __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
#else
    return __builtin_shufflevector(a, b, 0, 4, 2, 6) + __builtin_shufflevector(a, b, 1, 5, 3, 7);
#endif
  };
  const auto pairs = [](U64s a, U64s b) {
#if defined(__AVX512F__)
    return __builtin_shufflevector(a, b, 0, 1, 4, 5, 8, 9, 12, 13) +
           __builtin_shufflevector(a, b, 2, 3, 6, 7, 10, 11, 14, 15);
#else
    return __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
#endif
  };
  const U64s four = pairs(neighbours(v[0], v[1]), neighbours(v[2], v[3]));
#if defined(__AVX512F__)
  return pairs(four, pairs(neighbours(v[4], v[5]), neighbours(v[6], v[7])));
#else
  return four;
#endif
}
CONVTRACE_INLINE uint64_t sum_lanes(U64s value) {
#if defined(__AVX512F__)
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(as<__m512i>(value)));
#else
  uint64_t sum = 0;
  for (uint32_t i = 0; i < kWide; ++i) sum += value[i];
  return sum;
#endif
}

/// Squares of signed lanes of 16 bits, added up two by two.
CONVTRACE_INLINE Vector<uint32_t> squares_of_pairs(Vector<uint16_t> value) {
#if defined(__AVX512BW__)
  return as<Vector<uint32_t>>(_mm512_madd_epi16(as<__m512i>(value), as<__m512i>(value)));
#elif defined(__AVX2__)
  return as<Vector<uint32_t>>(_mm256_madd_epi16(as<__m256i>(value), as<__m256i>(value)));
#else
  const auto pairs = as<Vector<int32_t>>(value);
  const Vector<int32_t> even = (pairs << 16) >> 16, odd = pairs >> 16;
  return as<Vector<uint32_t>>(even * even + odd * odd);
#endif
}
/// Absolute values, of which that of -128 is an unsigned byte.
CONVTRACE_INLINE Vector<int8_t> magnitudes_of(Vector<int8_t> value) {
#if defined(__AVX512BW__)
  return as<Vector<int8_t>>(_mm512_abs_epi8(as<__m512i>(value)));
#elif defined(__AVX2__)
  return as<Vector<int8_t>>(_mm256_abs_epi8(as<__m256i>(value)));
#else
  const Vector<int8_t> negative = value < 0;
  return (value ^ negative) - negative;
#endif
}
#if defined(__AVX512VNNI__)
/// @return `sums` and the products of unsigned bytes of `a` and signed ones of `b`, four by four.
CONVTRACE_INLINE Vector<uint32_t> dot_bytes(Vector<uint32_t> sums, Vector<int8_t> a,
                                            Vector<int8_t> b) {
  return as<Vector<uint32_t>>(
      _mm512_dpbusd_epi32(as<__m512i>(sums), as<__m512i>(a), as<__m512i>(b)));
}
#endif
/// Sums of signed bytes, two by two.
CONVTRACE_INLINE Vector<uint16_t> sums_of_pairs(Vector<int8_t> value) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  return as<Vector<uint16_t>>(_mm256_maddubs_epi16(_mm256_set1_epi8(1), as<__m256i>(value)));
#else
  const auto pairs = as<Vector<int16_t>>(value);
  return as<Vector<uint16_t>>(((pairs << 8) >> 8) + (pairs >> 8));
#endif
}

/// @return what `combine` makes of all lanes, in any order.
template <typename Lane, uint32_t Bytes, typename Combine>
CONVTRACE_INLINE Lane combine_lanes_of(Vector<Lane, Bytes> lanes, Combine combine) {
  if constexpr (Bytes > 16) {
    Vector<Lane, Bytes / 2> halves[2];
    std::memcpy(halves, &lanes, sizeof lanes);
    return combine_lanes_of<Lane, Bytes / 2>(combine(halves[0], halves[1]), combine);
  } else {
    Lane all = lanes[0];
    for (uint32_t i = 1; i < Bytes / sizeof(Lane); ++i)
      all = static_cast<Lane>(combine(all, Lane{lanes[i]}));
    return all;
  }
}

}  // namespace
}  // namespace convtrace::stats

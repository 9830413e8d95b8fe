// Included by the files that compile cpu_tile_impl.h for one instruction set each; everything has
// internal linkage, so that code for one processor cannot be picked for another.
//
// 32-byte vectors of the compilers' vector extension: one AVX register, two of SSE2 or NEON.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace convtrace::stats {
namespace {

#define CONVTRACE_INLINE inline __attribute__((always_inline))

constexpr uint32_t kVectorBytes = 32;
template <typename T, uint32_t Bytes = kVectorBytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(Bytes)));
};
template <typename T, uint32_t Bytes = kVectorBytes>
using Vector = typename VectorOf<T, Bytes>::type;

using F64x4 = Vector<double>;
using U64x4 = Vector<uint64_t>;
using I64x4 = Vector<int64_t>;
using U32x8 = Vector<uint32_t>;
using F32x4 = Vector<float, 16>;
using U32x4 = Vector<uint32_t, 16>;
using I32x4 = Vector<int32_t, 16>;

template <typename V>
CONVTRACE_INLINE V load(const void* from) {
  V value;
  std::memcpy(&value, from, sizeof(V));
  return value;
}
template <typename V>
CONVTRACE_INLINE void store(void* to, V value) {
  std::memcpy(to, &value, sizeof(V));
}

template <typename To, typename From>
CONVTRACE_INLINE To as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

// Widening conversions: gcc 12 splits __builtin_convertvector into halves and goes through memory.
CONVTRACE_INLINE F64x4 widen(F32x4 value) {
#if defined(__AVX2__)
  return _mm256_cvtps_pd(value);
#else
  return __builtin_convertvector(value, F64x4);
#endif
}
CONVTRACE_INLINE F64x4 numbers(I32x4 value) {
#if defined(__AVX2__)
  return _mm256_cvtepi32_pd(as<__m128i>(value));
#else
  return __builtin_convertvector(value, F64x4);
#endif
}
CONVTRACE_INLINE I64x4 widen(I32x4 value) {
#if defined(__AVX2__)
  return as<I64x4>(_mm256_cvtepi32_epi64(as<__m128i>(value)));
#else
  return __builtin_convertvector(value, I64x4);
#endif
}
/// Four consecutive elements of 1, 2 or 4 bytes, zero-extended.
template <typename Bits>
CONVTRACE_INLINE U32x4 load_four(const void* from) {
#if defined(__AVX2__)
  if constexpr (sizeof(Bits) == 2) {
    return as<U32x4>(_mm_cvtepu16_epi32(_mm_cvtsi64_si128(load<int64_t>(from))));
  } else if constexpr (sizeof(Bits) == 1) {
    return as<U32x4>(_mm_cvtepu8_epi32(_mm_cvtsi32_si128(load<int32_t>(from))));
  }
#endif
  return __builtin_convertvector(load<Vector<Bits, 4 * sizeof(Bits)>>(from), U32x4);
}

/// a * b + c, each lane rounded once.
CONVTRACE_INLINE F64x4 fma4(F64x4 a, F64x4 b, F64x4 c) {
#if defined(__FMA__)
  return _mm256_fmadd_pd(a, b, c);
#else
  F64x4 result{};
  for (int i = 0; i < 4; ++i) result[i] = __builtin_fma(a[i], b[i], c[i]);
  return result;
#endif
}

/// Products of the lower halves of 64-bit lanes.
CONVTRACE_INLINE U64x4 mul_low_halves(U64x4 a, U64x4 b) {
#if defined(__AVX2__)
  return as<U64x4>(_mm256_mul_epu32(as<__m256i>(a), as<__m256i>(b)));
#else
  return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF);
#endif
}

}  // namespace
}  // namespace convtrace::stats

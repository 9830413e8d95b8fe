// Included by the files that compile cpu_tile_impl.h for one instruction set each; everything has
// internal linkage, so that code for one processor cannot be picked for another.
//
// Vectors of the compilers' vector extension as wide as a register: of AVX-512, of AVX, or two of
// SSE2 or NEON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace convtrace::stats {
namespace {

#define CONVTRACE_INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr uint32_t kVectorBytes = 64;
#else
constexpr uint32_t kVectorBytes = 32;
#endif
/// Lanes of 64 bits.
constexpr uint32_t kWide = kVectorBytes / 8;
template <typename T, uint32_t Bytes = kVectorBytes>
struct VectorOf {
  typedef T type __attribute__((vector_size(Bytes)));
};
template <typename T, uint32_t Bytes = kVectorBytes>
using Vector = typename VectorOf<T, Bytes>::type;

// A register of 64-bit lanes, and half a register of as many 32-bit lanes.
using F64s = Vector<double>;
using U64s = Vector<uint64_t>;
using I64s = Vector<int64_t>;
using F32s = Vector<float, kVectorBytes / 2>;
using U32s = Vector<uint32_t, kVectorBytes / 2>;
using I32s = Vector<int32_t, kVectorBytes / 2>;

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

/// gcc 12 loads a value again for each use of it, which a loop that is bound by its loads feels.
template <typename V>
CONVTRACE_INLINE void keep_in_register([[maybe_unused]] V& value) {
#if defined(__AVX2__)
  __asm__("" : "+v"(value));
#endif
}

template <typename To, typename From>
CONVTRACE_INLINE To as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

// Widening conversions: gcc 12 splits __builtin_convertvector into halves and goes through memory.
CONVTRACE_INLINE F64s widen(F32s value) {
#if defined(__AVX512F__)
  return _mm512_cvtps_pd(value);
#elif defined(__AVX2__)
  return _mm256_cvtps_pd(value);
#else
  return __builtin_convertvector(value, F64s);
#endif
}
CONVTRACE_INLINE F64s numbers(I32s value) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_pd(as<__m256i>(value));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_pd(as<__m128i>(value));
#else
  return __builtin_convertvector(value, F64s);
#endif
}
CONVTRACE_INLINE I64s widen(I32s value) {
#if defined(__AVX512F__)
  return as<I64s>(_mm512_cvtepi32_epi64(as<__m256i>(value)));
#elif defined(__AVX2__)
  return as<I64s>(_mm256_cvtepi32_epi64(as<__m128i>(value)));
#else
  return __builtin_convertvector(value, I64s);
#endif
}

/// Elements four by four, as many as there are lanes of 64 bits: the second four are `stride` bytes
/// behind the first.
template <typename Bits>
CONVTRACE_INLINE Vector<Bits, kWide * sizeof(Bits)> load_fours(const std::byte* at,
                                                               uint32_t stride) {
  using Fours = Vector<Bits, kWide * sizeof(Bits)>;
  constexpr uint32_t kFourBytes = 4 * sizeof(Bits);
  if (kWide == 4 || stride == kFourBytes) return load<Fours>(at);
  Fours fours;
  std::memcpy(&fours, at, kFourBytes);
  std::memcpy(reinterpret_cast<std::byte*>(&fours) + kFourBytes, at + stride,
              kWide > 4 ? kFourBytes : 0);
  return fours;
}
/// a * b + c, each lane rounded once.
CONVTRACE_INLINE F64s fma_lanes(F64s a, F64s b, F64s c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__FMA__)
  return _mm256_fmadd_pd(a, b, c);
#else
  F64s result{};
  for (uint32_t i = 0; i < kWide; ++i) result[i] = __builtin_fma(a[i], b[i], c[i]);
  return result;
#endif
}

using U32x8 = Vector<uint32_t, 32>;
using F32x8 = Vector<float, 32>;

/// a * b + c in f32, for products of at most 24 bits: of short significands, or with a power of two.
/// Without the instruction f64 does: it is then the sum of two f32, and 53 bits are enough for the
/// second rounding to change nothing (2 * 24 + 2 <= 53).
CONVTRACE_INLINE F32x8 fma_lanes(F32x8 a, F32x8 b, F32x8 c) {
#if defined(__FMA__)
  return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
  F32x8 result{};
  for (uint32_t i = 0; i < 8; ++i) result[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return result;
#else
  using F64x8 = Vector<double, 64>;
  const F64x8 product = __builtin_convertvector(a, F64x8) * __builtin_convertvector(b, F64x8);
  return __builtin_convertvector(product + __builtin_convertvector(c, F64x8), F32x8);
#endif
}

#if defined(__AVX512F__)
CONVTRACE_INLINE Vector<float, 64> fma_lanes(Vector<float, 64> a, Vector<float, 64> b,
                                             Vector<float, 64> c) {
  return _mm512_fmadd_ps(a, b, c);
}
#endif

using Floats = Vector<float>;

/// Lanes widened: the lower half, then the upper one.
struct WideFloats {
  F64s half[2];
};
CONVTRACE_INLINE WideFloats widen(Floats value) {
  F32s halves[2];
  std::memcpy(halves, &value, sizeof halves);
  return {{widen(halves[0]), widen(halves[1])}};
}

/// Products of the lower halves of 64-bit lanes.
CONVTRACE_INLINE U64s mul_low_halves(U64s a, U64s b) {
#if defined(__AVX512F__)
  return as<U64s>(_mm512_mul_epu32(as<__m512i>(a), as<__m512i>(b)));
#elif defined(__AVX2__)
  return as<U64s>(_mm256_mul_epu32(as<__m256i>(a), as<__m256i>(b)));
#else
  return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF);
#endif
}

}  // namespace
}  // namespace convtrace::stats

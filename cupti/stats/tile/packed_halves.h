#pragma once
/// @file packed_halves.h
/// Floats of 8 and 16 bits as the two halves of a register: a device's packed operations on them, and
/// what they mean, for the host.
///
/// f8e5m2 is the upper byte of an f16. f8e4m3fn is put into the bits of an f16 that is 2^-8 of it,
/// in the same order; its NaN becomes a number there, above the finite ones.
///
/// Place:    device code and its host replay, which so runs the algorithms that are made of them.
/// Source:   PTX ISA, "Half Precision Floating Point Instructions": min and max order -0 before +0
///           and, with .NaN, give the canonical NaN 0x7FFF for one.

#include <cstdint>

#include "cupti/stats/tile/dtype_decode.h"

namespace convtrace::stats {

template <DType D>
inline constexpr bool kHasHalves = Element<D>::kFloat && sizeof(typename Element<D>::Bits) <= 2;

/// Registers of halves that a word of elements takes.
template <DType D>
inline constexpr uint32_t kHalvesOfWord = 2 / sizeof(typename Element<D>::Bits);

/// What a half is less than its element, inverted: a power of two.
template <DType D>
inline constexpr float kHalfUnit = D == DType::kF8E4M3FN ? 256 : 1;

/// What a half is by itself.
template <DType D>
using HalfElement = Element<D == DType::kBF16 ? DType::kBF16 : DType::kF16>;

/// @param odd  which of the bytes: 1 and 3, or 0 and 2. 16-bit types: 0.
template <DType D>
CONVTRACE_HD uint32_t halves_of(uint32_t word, uint32_t odd) {
  if constexpr (sizeof(typename Element<D>::Bits) == 2) return word;
  const uint32_t upper = odd != 0 ? word : word << 8;
  if constexpr (D == DType::kF8E5M2) return upper & 0xFF00FF00;
  return (upper & 0x80008000) | (upper >> 1 & 0x3F803F80);
}

/// @return the element of a half.
template <DType D>
CONVTRACE_HD typename Element<D>::Bits bits_of_half(uint16_t half) {
  using Bits = typename Element<D>::Bits;
  if constexpr (D == DType::kF8E5M2) return static_cast<Bits>(half >> 8);
  if constexpr (D == DType::kF8E4M3FN)
    return static_cast<Bits>((half >> 8 & 0x80) | (half >> 7 & 0x7F));
  return static_cast<Bits>(half);
}

#if !defined(__CUDA_ARCH__)
/// Half by half, a NaN or the one of the two that comes first in order, or last.
template <DType D, bool Last>
inline uint32_t chosen_halves(uint32_t a, uint32_t b) {
  using E = HalfElement<D>;
  uint32_t chosen = 0;
  for (const uint32_t shift : {0U, 16U}) {
    const auto x = static_cast<uint16_t>(a >> shift), y = static_cast<uint16_t>(b >> shift);
    const bool nan = E::nan(x) || E::nan(y);
    const uint16_t half = (E::key(x) < E::key(y)) != Last ? x : y;
    chosen |= uint32_t{nan ? uint16_t{0x7FFF} : half} << shift;
  }
  return chosen;
}
#endif

template <DType D>
CONVTRACE_HD uint32_t least_halves(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  uint32_t least;
  if constexpr (D == DType::kBF16)
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(least) : "r"(a), "r"(b));
  else
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(least) : "r"(a), "r"(b));
  return least;
#else
  return chosen_halves<D, false>(a, b);
#endif
}

template <DType D>
CONVTRACE_HD uint32_t most_halves(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__)
  uint32_t most;
  if constexpr (D == DType::kBF16)
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  else
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  return most;
#else
  return chosen_halves<D, true>(a, b);
#endif
}

/// @return the value of the lower or upper half, which is finite; of f8e4m3fn over kHalfUnit.
template <DType D>
CONVTRACE_HD float half_value(uint32_t halves, uint32_t high) {
#if defined(__CUDA_ARCH__)
  if constexpr (D == DType::kBF16) {
    return __uint_as_float(high != 0 ? halves & 0xFFFF0000 : halves << 16);
  } else {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(halves >> 16 * high)));
    return value;
  }
#else
  return HalfElement<D>::narrow_value(static_cast<uint16_t>(halves >> 16 * high));
#endif
}

}  // namespace convtrace::stats

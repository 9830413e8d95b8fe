#pragma once
/// @file packed_halves.h
/// Floats of 8 and 16 bits as the two halves of a register: packed operations on them as a device's
/// instructions, and as portable code for the host.
///
/// f8e5m2 is the upper byte of an f16. Floats of 8 bits with a shorter exponent are put into the bits
/// of an f16 that is less by a power of two, in the same order: f8e4m3fn, whose NaN becomes a number
/// there, above the finite ones, and f4e2m1fn.
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

/// True: halves are bf16; false: f16.
template <DType D>
inline constexpr bool kBf16Halves = D == DType::kBF16 || D == DType::kF8E8M0FNU;

/// @return the value of an element divided by that of its half: a power of two.
template <DType D>
constexpr float half_unit() {
  constexpr int kHalfBias = 15;  // exponent bias of f16
  if constexpr (sizeof(typename Element<D>::Bits) == 1) return 1 << (kHalfBias - Element<D>::kBias);
  return 1;
}
template <DType D>
inline constexpr float kHalfUnit = half_unit<D>();

/// The element type of a half.
template <DType D>
using HalfElement = Element<kBf16Halves<D> ? DType::kBF16 : DType::kF16>;

/// How much further down an f16 has the magnitude of an element of 8 bits than its upper byte has.
template <DType D>
inline constexpr uint32_t kHalfShift = Element<D>::kMantissa - 2;

/// @param odd  which of the bytes: 1 and 3, or 0 and 2. 16-bit types: 0.
template <DType D>
CONVTRACE_HD uint32_t halves_of(uint32_t word, uint32_t odd) {
  if constexpr (sizeof(typename Element<D>::Bits) == 2) {
    return word;
  } else {
    const uint32_t upper = odd != 0 ? word : word << 8;
    if constexpr (kHalfShift<D> == 0) return upper & 0xFF00FF00;
    constexpr uint32_t kMagnitudes = (0x7F00u >> kHalfShift<D>)*0x00010001;
    return (upper & 0x80008000) | (upper >> kHalfShift<D> & kMagnitudes);
  }
}

/// @return the element of a half.
template <DType D>
CONVTRACE_HD typename Element<D>::Bits bits_of_half(uint16_t half) {
  if constexpr (sizeof(typename Element<D>::Bits) == 2) {
    return static_cast<typename Element<D>::Bits>(half);
  } else {
    return static_cast<typename Element<D>::Bits>((half >> 8 & 0x80) |
                                                  (half >> (8 - kHalfShift<D>)&0x7F));
  }
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
  if constexpr (kBf16Halves<D>)
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
  if constexpr (kBf16Halves<D>)
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  else
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  return most;
#else
  return chosen_halves<D, true>(a, b);
#endif
}

/// @return the value of the lower or upper half, which is finite: the element's over kHalfUnit.
template <DType D>
CONVTRACE_HD float half_value(uint32_t halves, uint32_t high) {
#if defined(__CUDA_ARCH__)
  if constexpr (kBf16Halves<D>) {
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

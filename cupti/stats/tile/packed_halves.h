#pragma once
/// @file packed_halves.h
/// Floats of 8 and 16 bits as the two halves of a register, for a device's packed operations.
///
/// f8e5m2 is the upper byte of an f16. f8e4m3fn is put into the bits of an f16 that is 2^-8 of it,
/// in the same order; its NaN becomes a number there, above the finite ones.
///
/// Place:    device code.
/// Source:   PTX ISA, "Half Precision Floating Point Instructions": min and max order -0 before +0
///           and, with .NaN, give a NaN for one.

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

#if defined(__CUDA_ARCH__)

/// @param odd  which of the bytes: 1 and 3, or 0 and 2. 16-bit types: 0.
template <DType D>
__device__ __forceinline__ uint32_t halves_of(uint32_t word, uint32_t odd) {
  if constexpr (sizeof(typename Element<D>::Bits) == 2) return word;
  const uint32_t upper = odd != 0 ? word : word << 8;
  if constexpr (D == DType::kF8E5M2) return upper & 0xFF00FF00;
  return (upper & 0x80008000) | (upper >> 1 & 0x3F803F80);
}

/// @return the element of a half.
template <DType D>
__device__ __forceinline__ typename Element<D>::Bits bits_of_half(uint16_t half) {
  if constexpr (D == DType::kF8E5M2) return static_cast<uint8_t>(half >> 8);
  if constexpr (D == DType::kF8E4M3FN)
    return static_cast<uint8_t>((half >> 8 & 0x80) | (half >> 7 & 0x7F));
  return half;
}

template <DType D>
__device__ __forceinline__ uint32_t least_halves(uint32_t a, uint32_t b) {
  uint32_t least;
  if constexpr (D == DType::kBF16)
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(least) : "r"(a), "r"(b));
  else
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(least) : "r"(a), "r"(b));
  return least;
}

template <DType D>
__device__ __forceinline__ uint32_t most_halves(uint32_t a, uint32_t b) {
  uint32_t most;
  if constexpr (D == DType::kBF16)
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  else
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
  return most;
}

/// @return the value of the lower or upper half; of f8e4m3fn over kHalfUnit.
template <DType D>
__device__ __forceinline__ float half_value(uint32_t halves, uint32_t high) {
  if constexpr (D == DType::kBF16) {
    return __uint_as_float(high != 0 ? halves & 0xFFFF0000 : halves << 16);
  } else {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(halves >> 16 * high)));
    return value;
  }
}

#endif

}  // namespace convtrace::stats

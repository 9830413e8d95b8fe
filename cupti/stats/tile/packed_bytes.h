#pragma once
/// @file packed_bytes.h
/// Operations on the bytes of a word: as a device's instructions, and as portable code for the host.
///
/// Place:    device code and its host replay, which so runs the algorithms that are made of them.
/// Source:   PTX ISA, "Data Movement and Conversion Instructions: prmt", "Integer Arithmetic
///           Instructions: dp4a, dp2a".

#include <cstdint>

#include "cupti/stats/tile/arith.h"

namespace convtrace::stats {

/// prmt. @tparam Selector  a digit of 4 bits a byte of the result, the lowest first: 0 to 3 is a byte
/// of `a`, 4 to 7 one of `b`; with 8 added, the byte's sign bit eight times.
template <uint32_t Selector>
CONVTRACE_HD uint32_t chosen_bytes(uint32_t a, uint32_t b) {
  uint32_t chosen = 0;
#if defined(__CUDA_ARCH__)
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(chosen) : "r"(a), "r"(b), "n"(Selector));
#else
  const uint64_t bytes = uint64_t{b} << 32 | a;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t digit = Selector >> 4 * i & 0xF;
    const auto byte = static_cast<int8_t>(bytes >> 8 * (digit % 8));
    chosen |= uint32_t{static_cast<uint8_t>(digit < 8 ? byte : byte >> 7)} << 8 * i;
  }
#endif
  return chosen;
}

/// dp4a, and dp2a of the lower bytes. @return `sum` and the products of the elements of `a`, which
/// have Size bytes, and as many bytes of `b`, mod 2^32. @tparam Signed  whether both have a sign.
template <bool Signed, uint32_t Size>
CONVTRACE_HD uint32_t dot(uint32_t a, uint32_t b, uint32_t sum) {
  static_assert(Size == 1 || Size == 2);
#if defined(__CUDA_ARCH__)
  const auto signed_a = static_cast<int>(a), signed_b = static_cast<int>(b);
  const auto signed_sum = static_cast<int>(sum);
  if constexpr (Size == 1) {
    return Signed ? static_cast<uint32_t>(__dp4a(signed_a, signed_b, signed_sum))
                  : __dp4a(a, b, sum);
  } else {
    return Signed ? static_cast<uint32_t>(__dp2a_lo(signed_a, signed_b, signed_sum))
                  : __dp2a_lo(a, b, sum);
  }
#else
  constexpr uint32_t kUnused = 32 - 8 * Size;
  for (uint32_t i = 0; i < 4 / Size; ++i) {
    const uint32_t x = a >> 8 * Size * i << kUnused, y = b >> 8 * i << 24;  // at the upper end
    sum += Signed ? static_cast<uint32_t>(static_cast<int32_t>(x) >> kUnused) *
                        static_cast<uint32_t>(static_cast<int32_t>(y) >> 24)
                  : (x >> kUnused) * (y >> 24);
  }
  return sum;
#endif
}

}  // namespace convtrace::stats

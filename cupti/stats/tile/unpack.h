#pragma once
/// @file unpack.h
/// Elements that are taken wider than they lie in memory: a byte becomes two bytes of a group.
///
/// A byte of f4e2m1fn holds two values, the first in its lower half. Each becomes the upper half of
/// a byte: a float of 8 bits with five bits of mantissa, of which the lower four are 0. A byte of
/// f8e8m0fnu is an exponent; it becomes that of a bf16. So all that counts and sums takes both as
/// it takes other floats of 8 and 16 bits, in tiles of twice as many bytes. Only what loads
/// elements knows of it, and the hash, which is of memory's bytes.
///
/// Source:   the order of the halves: PyTorch, torch/headeronly/util/Float4_e2m1fn_x2.h.

#include <cstdint>

#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

/// @param bytes  two bytes of memory, each in the lower half of a half of the word.
/// @return the unpacked elements, in the same order.
template <DType D>
CONVTRACE_HD uint32_t unpack_halves(uint32_t bytes) {
  static_assert(kUnpacked<D>);
  if constexpr (D == DType::kF4E2M1FN) {
    return (bytes << 4 & 0x00F000F0) | (bytes << 8 & 0xF000F000);
  } else {
    // 2^-127 has no exponent in bf16. 255 becomes infinity there, which Element takes for a NaN.
    const uint32_t zeros = ~(bytes + 0x00FF00FF) & 0x01000100;
    return bytes << 7 | zeros >> 2;
  }
}

/// @param low, @param high  8 bytes of memory.
template <DType D>
CONVTRACE_HD Group unpack(uint32_t low, uint32_t high) {
  const auto halves = [](uint32_t word) { return (word & 0xFF) | (word & 0xFF00) << 8; };
  return {{unpack_halves<D>(halves(low)), unpack_halves<D>(halves(low >> 16)),
           unpack_halves<D>(halves(high)), unpack_halves<D>(halves(high >> 16))}};
}

/// @return the group with zeros behind its first `bytes` bytes, an even number: bytes of memory that
/// are not there become zeros only of types that have a zero.
CONVTRACE_HD Group first_of(Group group, uint32_t bytes) {
  for (uint32_t i = 0; i<4; ++i, bytes = bytes> 4 ? bytes - 4 : 0) {
    if (bytes < 4) group.word[i] &= bytes == 0 ? 0 : 0xFFFF;
  }
  return group;
}

/// @return the bits of value `n` of an element of memory, as samples have them.
CONVTRACE_HD constexpr uint64_t nth_value(uint64_t element, DType dtype, uint64_t n) {
  return dtype == DType::kF4E2M1FN ? element >> 4 * n & 0xF : element;
}

}  // namespace convtrace::stats

#pragma once
/// @file unusual_patterns.h
/// Tensors of floats that hold one unusual kind of value and little else.

#include <cstring>
#include <vector>

#include "format/model/dtype.h"

namespace convtrace::stats::test {

inline constexpr format::DType kFloatDTypes[] = {
    format::DType::kF64,      format::DType::kF32,      format::DType::kF16,
    format::DType::kBF16,     format::DType::kF8E4M3FN, format::DType::kF8E5M2,
    format::DType::kF4E2M1FN, format::DType::kF8E8M0FNU};

/// Bits of some values of a type, as its standard has them: of f4e2m1fn of two alike. Where a type has
/// no such value, of one that it has.
struct FloatBits {
  uint64_t nan, inf, largest, one, sign;
};

inline FloatBits float_bits(format::DType dtype) {
  using enum format::DType;
  switch (dtype) {
    case kF64:
      return {0x7FF8000000000000, 0x7FF0000000000000, 0x7FEFFFFFFFFFFFFF, 0x3FF0000000000000,
              uint64_t{1} << 63};
    case kF32: return {0x7FC00000, 0x7F800000, 0x7F7FFFFF, 0x3F800000, 0x80000000};
    case kF16: return {0x7E00, 0x7C00, 0x7BFF, 0x3C00, 0x8000};
    case kBF16: return {0x7FC0, 0x7F80, 0x7F7F, 0x3F80, 0x8000};
    case kF8E4M3FN:  // has no infinity
      return {0x7F, 0x7F, 0x7E, 0x38, 0x80};
    case kF4E2M1FN:  // has no infinity and no NaN
      return {0x77, 0x77, 0x77, 0x22, 0x88};
    case kF8E8M0FNU:  // has no infinity and no sign
      return {0xFF, 0xFF, 0xFE, 0x7F, 0};
    default: return {0x7E, 0x7C, 0x7B, 0x3C, 0x80};
  }
}

/// Elements in turn. The smallest subnormal is 1.
inline std::vector<std::vector<uint64_t>> unusual_patterns(format::DType dtype) {
  const auto [nan, inf, largest, one, sign] = float_bits(dtype);
  return {{nan},
          {nan | sign},
          {inf},
          {inf | sign},
          {inf, inf | sign, nan},
          {0},
          {sign},
          {0, sign},
          {sign, one | sign},
          {one | sign, largest | sign, sign},
          {1},
          {1, sign | 3},
          {one, 1},
          {largest},
          {largest, largest | sign},
          {one, nan},
          {one, inf | sign},
          {largest, one},
          {one, 0, one, one, sign},
          {one | sign, one, 1, one}};
}

/// @return `count` elements, those of `pattern` in turn.
inline std::vector<uint8_t> repeated_bits(format::DType dtype, uint64_t count,
                                          const std::vector<uint64_t>& pattern) {
  const size_t size = format::element_bytes(dtype);
  std::vector<uint8_t> bytes(count * size);
  for (uint64_t i = 0; i < count; ++i)
    std::memcpy(&bytes[i * size], &pattern[i % pattern.size()], size);
  return bytes;
}

}  // namespace convtrace::stats::test

#pragma once
/// @file element.h
/// Reads stored numbers of any dtype as doubles, for showing and comparing them.
///
/// Threads:  pure functions. Integers beyond 2^53 are rounded: exact comparison uses the hash.
/// Source:   format/model/stats.h for how Scalar and WideScalar are to be read.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "format/model/dtype.h"
#include "format/model/stats.h"

namespace convtrace::tools {

/// @return bytes of one real component as samples have them: half of a complex element, else
/// element_bytes, so that a value of f4e2m1fn takes a byte, in its lower half.
[[nodiscard]] uint32_t component_bytes(format::DType dtype);

/// Decodes one real component. @param bits little-endian, at least component_bytes(dtype) long.
[[nodiscard]] double decode_component(format::DType dtype, const std::byte* bits);

/// @return the elements of a stored value as samples have them.
[[nodiscard]] std::vector<std::byte> as_samples(format::DType dtype, std::vector<std::byte> value);

/// Decodes samples; complex ones give two numbers each. Trailing bytes that make no whole
/// component are ignored.
[[nodiscard]] std::vector<double> decode_elements(format::DType dtype,
                                                  std::span<const std::byte> raw);

/// `value` is min or max (signed for signed dtypes).
[[nodiscard]] inline double extreme_as_double(format::DType dtype, format::Scalar value) {
  switch (format::number_class(dtype)) {
    case format::NumberClass::kFloat: return value.as_f64();
    case format::NumberClass::kSigned: return static_cast<double>(value.as_i64());
    case format::NumberClass::kUnsigned:
    case format::NumberClass::kBytes: break;
  }
  return static_cast<double>(value.as_u64());
}

/// `value` is amax or amin_nonzero (never signed).
[[nodiscard]] inline double magnitude_as_double(format::DType dtype, format::Scalar value) {
  return format::number_class(dtype) == format::NumberClass::kFloat
             ? value.as_f64()
             : static_cast<double>(value.as_u64());
}

/// `value` is sum or l1.
[[nodiscard]] inline double wide_as_double(format::DType dtype, format::WideScalar value) {
  if (format::number_class(dtype) == format::NumberClass::kFloat) return value.as_f64();
  const bool negative = value.hi >> 63 != 0;
  const uint64_t low = negative ? 0 - value.lo : value.lo;
  const uint64_t high = negative ? ~value.hi + (value.lo == 0 ? 1 : 0) : value.hi;
  const double size = static_cast<double>(high) * 0x1p64 + static_cast<double>(low);
  return negative ? -size : size;
}

}  // namespace convtrace::tools

#include "tools/common/element.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace convtrace::tools {
namespace {

using format::DType;

template <typename T>
T load(const std::byte* bits) {
  T value;
  std::memcpy(&value, bits, sizeof value);
  return value;
}

/// A small float by its layout: sign, `exponent_bits`, `mantissa_bits`, IEEE bias.
/// `ieee_specials`: the largest exponent means Inf and NaN; else (e4m3fn) only all ones is NaN.
double decode_small_float(uint32_t bits, int exponent_bits, int mantissa_bits, bool ieee_specials) {
  const uint32_t mantissa_mask = (1u << mantissa_bits) - 1;
  const uint32_t exponent_mask = (1u << exponent_bits) - 1;
  const uint32_t mantissa = bits & mantissa_mask;
  const uint32_t exponent = bits >> mantissa_bits & exponent_mask;
  const double sign = (bits >> (exponent_bits + mantissa_bits) & 1) != 0 ? -1.0 : 1.0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == exponent_mask) {
    if (ieee_specials && mantissa == 0) return sign * std::numeric_limits<double>::infinity();
    if (ieee_specials || mantissa == mantissa_mask) return std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa | (1u << mantissa_bits),
                           static_cast<int>(exponent) - bias - mantissa_bits);
}

double decode_f4(uint8_t bits) {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (bits & 8) != 0 ? -kMagnitudes[bits & 7] : kMagnitudes[bits & 7];
}

double decode_exponent(uint8_t bits) {
  constexpr int kBias = 127;
  constexpr uint8_t kNan = 0xFF;
  return bits == kNan ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, bits - kBias);
}

}  // namespace

uint32_t component_bytes(DType dtype) {
  const bool complex = dtype == DType::kC64 || dtype == DType::kC128;
  return format::element_bytes(dtype) / (complex ? 2 : 1);
}

double decode_component(DType dtype, const std::byte* bits) {
  switch (dtype) {
    case DType::kF64:
    case DType::kC128: return load<double>(bits);
    case DType::kF32:
    case DType::kC64: return static_cast<double>(load<float>(bits));
    case DType::kF16: return decode_small_float(load<uint16_t>(bits), 5, 10, true);
    case DType::kBF16:
      return static_cast<double>(std::bit_cast<float>(uint32_t{load<uint16_t>(bits)} << 16));
    case DType::kF8E4M3FN: return decode_small_float(load<uint8_t>(bits), 4, 3, false);
    case DType::kF8E5M2: return decode_small_float(load<uint8_t>(bits), 5, 2, true);
    case DType::kF4E2M1FN: return decode_f4(load<uint8_t>(bits));
    case DType::kF8E8M0FNU: return decode_exponent(load<uint8_t>(bits));
    case DType::kI8: return load<int8_t>(bits);
    case DType::kI16: return load<int16_t>(bits);
    case DType::kI32: return load<int32_t>(bits);
    case DType::kI64: return static_cast<double>(load<int64_t>(bits));
    case DType::kU16: return load<uint16_t>(bits);
    case DType::kU32: return load<uint32_t>(bits);
    case DType::kU64: return static_cast<double>(load<uint64_t>(bits));
    case DType::kUnknown:
    case DType::kU8:
    case DType::kBool: return load<uint8_t>(bits);
  }
  return 0;
}

std::vector<std::byte> as_samples(DType dtype, std::vector<std::byte> value) {
  if (dtype != DType::kF4E2M1FN) return value;
  std::vector<std::byte> samples;
  samples.reserve(2 * value.size());
  for (const std::byte pair : value) {
    samples.push_back(pair & std::byte{0xF});
    samples.push_back(pair >> 4);
  }
  return samples;
}

std::vector<double> decode_elements(DType dtype, std::span<const std::byte> raw) {
  const size_t step = component_bytes(dtype);
  std::vector<double> values(raw.size() / step);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = decode_component(dtype, raw.data() + i * step);
  return values;
}

}  // namespace convtrace::tools

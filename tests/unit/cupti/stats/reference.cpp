#include "tests/unit/cupti/stats/reference.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

namespace convtrace::stats::test {
namespace {

using format::DType;
using format::NumberClass;
using format::Scalar;
using format::Stats;
using format::WideScalar;
#if defined(__aarch64__)
using Quad = long double;  // of 128 bits there
#else
__extension__ typedef __float128 Quad;
#endif
__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 UInt128;

struct FloatFormat {
  int exponent_bits, fraction_bits;
  bool e4m3fn;
};

FloatFormat float_format(DType dtype) {
  switch (dtype) {
    case DType::kF64: return {11, 52, false};
    case DType::kF32: return {8, 23, false};
    case DType::kF16: return {5, 10, false};
    case DType::kBF16: return {8, 7, false};
    case DType::kF8E4M3FN: return {4, 3, true};
    default: return {5, 2, false};
  }
}

Decoded decode_float(FloatFormat f, uint64_t bits) {
  const uint64_t fraction = bits & ((uint64_t{1} << f.fraction_bits) - 1);
  const auto exponent =
      static_cast<int>((bits >> f.fraction_bits) & ((uint64_t{1} << f.exponent_bits) - 1));
  const int top = (1 << f.exponent_bits) - 1;
  const int bias = top / 2;
  const uint64_t ones = (uint64_t{1} << f.fraction_bits) - 1;
  Decoded d;
  d.negative = (bits >> (f.exponent_bits + f.fraction_bits)) & 1;
  if (exponent == top && (!f.e4m3fn || fraction == ones)) {
    d.kind = fraction == 0 ? Decoded::Kind::kInf : Decoded::Kind::kNan;
    return d;
  }
  d.subnormal = exponent == 0 && fraction != 0;
  d.largest =
      f.e4m3fn ? exponent == top && fraction == ones - 1 : exponent == top - 1 && fraction == ones;
  const auto significand = static_cast<long double>(exponent == 0 ? fraction : fraction + ones + 1);
  const long double value =
      std::ldexp(significand, (exponent == 0 ? 1 : exponent) - bias - f.fraction_bits);
  d.value = d.negative ? -value : value;
  return d;
}

/// OCP Microscaling Formats version 1.0, 5.3.3.
Decoded decode_f4(uint64_t bits) {
  Decoded d;
  d.negative = (bits >> 3) & 1;
  const uint64_t exponent = (bits >> 1) & 3, fraction = bits & 1;
  d.subnormal = exponent == 0 && fraction != 0;
  d.largest = exponent == 3 && fraction == 1;
  const auto significand = static_cast<long double>(exponent == 0 ? fraction : fraction + 2);
  d.value = std::ldexp(significand, static_cast<int>(exponent == 0 ? 1 : exponent) - 1 - 1);
  if (d.negative) d.value = -d.value;
  return d;
}

/// The same, 5.4.1.
Decoded decode_exponent(uint64_t bits) {
  Decoded d;
  if (bits == 0xFF) {
    d.kind = Decoded::Kind::kNan;
    return d;
  }
  d.largest = bits == 0xFE;
  d.value = std::ldexp(1.0L, static_cast<int>(bits) - 127);
  return d;
}

template <typename Int>
Decoded decode_int(uint64_t bits) {
  const auto value = static_cast<Int>(bits);
  Decoded d;
  d.negative = value < 0;
  d.largest = value == std::numeric_limits<Int>::max() || value == std::numeric_limits<Int>::min();
  d.value = static_cast<long double>(value);
  return d;
}

DType real_dtype(DType dtype) {
  return dtype == DType::kC64 ? DType::kF32 : dtype == DType::kC128 ? DType::kF64 : dtype;
}

void count(const Decoded& d, Stats& s) {
  ++s.count;
  if (d.kind == Decoded::Kind::kNan) {
    ++s.nan;
    return;
  }
  if (d.kind == Decoded::Kind::kInf) {
    ++(d.negative ? s.neg_inf : s.pos_inf);
    ++(d.negative ? s.negative : s.positive);
    return;
  }
  ++s.finite;
  s.subnormal += d.subnormal;
  s.saturated += d.largest;
  if (d.value == 0) {
    ++(d.negative ? s.neg_zero : s.pos_zero);
  } else {
    ++(d.negative ? s.negative : s.positive);
  }
}

/// Smaller, with -0 before +0.
bool before(const Decoded& a, const Decoded& b) {
  return a.value < b.value || (a.value == b.value && a.negative && !b.negative);
}

Scalar scalar(NumberClass kind, const Decoded& d, bool magnitude) {
  if (kind == NumberClass::kFloat) {
    const auto value = static_cast<double>(d.value);
    return Scalar::f64(magnitude ? std::fabs(value) : value);
  }
  if (kind == NumberClass::kSigned && !magnitude) return Scalar::i64(static_cast<int64_t>(d.value));
  return Scalar::u64(static_cast<uint64_t>(std::fabs(d.value)));
}

WideScalar wide(Int128 value) {
  const auto bits = static_cast<UInt128>(value);
  return {static_cast<uint64_t>(bits), static_cast<uint64_t>(bits >> 64)};
}

double root(Quad square) {
  // sqrt in f64, then one Newton step in 113 bits.
  if (square <= 0) return 0;
  int exponent = 0;
  std::ignore = std::frexp(static_cast<long double>(square), &exponent);
  const int half = exponent / 2;
  const Quad scaled = square * static_cast<Quad>(std::ldexp(1.0L, -2 * half));
  Quad guess = std::sqrt(static_cast<long double>(scaled));
  guess = (guess + scaled / guess) / 2;
  return static_cast<double>(guess * static_cast<Quad>(std::ldexp(1.0L, half)));
}

}  // namespace

Decoded decode(DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::kI8: return decode_int<int8_t>(bits);
    case DType::kU8: return decode_int<uint8_t>(bits);
    case DType::kI16: return decode_int<int16_t>(bits);
    case DType::kU16: return decode_int<uint16_t>(bits);
    case DType::kI32: return decode_int<int32_t>(bits);
    case DType::kU32: return decode_int<uint32_t>(bits);
    case DType::kI64: return decode_int<int64_t>(bits);
    case DType::kU64: return decode_int<uint64_t>(bits);
    case DType::kBool: {
      Decoded d;
      d.value = bits != 0 ? 1 : 0;
      return d;
    }
    case DType::kF4E2M1FN: return decode_f4(bits);
    case DType::kF8E8M0FNU: return decode_exponent(bits);
    default: return decode_float(float_format(dtype), bits);
  }
}

std::vector<uint64_t> logical_elements(const TensorView& view) {
  std::vector<uint64_t> elements;
  const uint32_t size = format::element_bytes(view.dtype);
  const uint32_t real_size = format::element_bytes(real_dtype(view.dtype));
  int64_t index[format::kMaxDims] = {};
  for (uint64_t left = element_count(view); left > 0; --left) {
    int64_t offset = 0;
    for (uint32_t i = 0; i < view.rank; ++i) offset += index[i] * view.strides[i];
    const auto* at = static_cast<const std::byte*>(view.data) + offset * static_cast<int64_t>(size);
    for (uint32_t part = 0; part < size; part += real_size) {
      uint64_t bits = 0;
      std::memcpy(&bits, at + part, real_size);
      const bool pair = view.dtype == DType::kF4E2M1FN;
      elements.push_back(pair ? bits & 0xF : bits);
      if (pair) elements.push_back(bits >> 4);
    }
    for (uint32_t i = view.rank; i-- > 0;) {
      if (++index[i] < view.shape[i]) break;
      index[i] = 0;
    }
  }
  return elements;
}

Stats reference_stats(const TensorView& view) {
  const DType dtype = real_dtype(view.dtype);
  const NumberClass kind = format::number_class(dtype);
  Stats s;
  Quad sum = 0, l1 = 0, squares = 0;
  Int128 int_sum = 0, int_l1 = 0;
  Decoded min, max, amax, amin;
  bool any = false, any_nonzero = false;
  const auto elements = logical_elements(view);
  for (const uint64_t bits : elements) {
    const Decoded d = decode(dtype, bits);
    count(d, s);
    if (d.kind != Decoded::Kind::kFinite) continue;
    if (!any || before(d, min)) min = d;
    if (!any || before(max, d)) max = d;
    if (!any || std::fabs(d.value) > std::fabs(amax.value)) amax = d;
    any = true;
    if (d.value != 0 && (!any_nonzero || std::fabs(d.value) < std::fabs(amin.value))) {
      amin = d;
      any_nonzero = true;
    }
    const Quad value = d.value;
    sum += value;
    l1 += value < 0 ? -value : value;
    squares += value * value;
    if (kind != NumberClass::kFloat) {
      int_sum += static_cast<Int128>(d.value);
      int_l1 += static_cast<Int128>(std::fabs(d.value));
    }
  }
  const auto none = Scalar::f64(std::numeric_limits<double>::quiet_NaN());
  const Scalar absent = kind == NumberClass::kFloat ? none : Scalar{};
  s.min = any ? scalar(kind, min, false) : absent;
  s.max = any ? scalar(kind, max, false) : absent;
  s.amax = any ? scalar(kind, amax, true) : absent;
  s.amin_nonzero = any_nonzero ? scalar(kind, amin, true) : absent;
  s.sum = kind == NumberClass::kFloat ? WideScalar::f64(static_cast<double>(sum)) : wide(int_sum);
  s.l1 = kind == NumberClass::kFloat ? WideScalar::f64(static_cast<double>(l1)) : wide(int_l1);
  s.l2 = root(squares);
  s.mean = s.std = none.as_f64();
  if (any) {
    const Quad mean = sum / static_cast<Quad>(s.finite);
    Quad deviations = 0;
    for (const uint64_t bits : elements) {
      const Decoded d = decode(dtype, bits);
      if (d.kind != Decoded::Kind::kFinite) continue;
      deviations += (d.value - mean) * (d.value - mean);
    }
    s.mean = static_cast<double>(mean);
    s.std = root(deviations / static_cast<Quad>(s.finite));
  }
  return s;
}

double mean_magnitude(const TensorView& view) {
  long double total = 0;
  uint64_t finite = 0;
  for (const uint64_t bits : logical_elements(view)) {
    const Decoded d = decode(real_dtype(view.dtype), bits);
    if (d.kind != Decoded::Kind::kFinite) continue;
    total += std::fabs(d.value);
    ++finite;
  }
  return finite > 0 ? static_cast<double>(total / static_cast<long double>(finite)) : 0;
}

}  // namespace convtrace::stats::test

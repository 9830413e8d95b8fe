#pragma once
/// @file dtype_decode.h
/// Decodes the bits of one element: its value, its class, and integer keys that order values.
///
/// Element<D> exists for the 17 real types; complex types are walked as their real view and unknown
/// types as bytes (see walked_dtype). Keys make minimum and maximum exact integer operations with
/// -0 < +0, and magnitudes do the same for absolute values.
///
/// Source:   IEEE 754-2019; bfloat16 is the upper half of f32; f8e5m2 the upper byte of f16;
///           f8e4m3fn has no infinity and one NaN pattern (OCP OFP8 revision 1.0); f4e2m1fn and
///           f8e8m0fnu: OCP Microscaling Formats (MX) version 1.0, sections 5.3.3 and 5.4.1.

#include <cstdint>
#include <limits>
#include <type_traits>

#include "cupti/stats/tile/arith.h"
#include "format/model/dtype.h"

namespace convtrace::stats {

using format::DType;

#define CONVTRACE_WALKED_DTYPES(X) \
  X(kF64)                          \
  X(kF32)                          \
  X(kF16)                          \
  X(kBF16)                         \
  X(kF8E4M3FN)                     \
  X(kF8E5M2)                       \
  X(kF4E2M1FN)                     \
  X(kF8E8M0FNU)                    \
  X(kI8) X(kU8) X(kI16) X(kU16) X(kI32) X(kU32) X(kI64) X(kU64) X(kBool)

/// One type of each size: enough where only bits matter.
#define CONVTRACE_BITS_DTYPES(X) X(kU8) X(kU16) X(kU32) X(kU64)

/// @return the type whose elements are counted: the real view of a complex, bytes of an unknown.
constexpr DType walked_dtype(DType dtype) {
  if (dtype == DType::kC64) return DType::kF32;
  if (dtype == DType::kC128) return DType::kF64;
  if (dtype == DType::kUnknown) return DType::kU8;
  return dtype;
}

/// A binary floating type: sign, exponent, `Mantissa` fraction bits; finite up to `MaxFinite`
/// (magnitude bits), then one pattern for infinity if `HasInf`, then NaNs. Magnitudes below
/// `MinNormal` but 0 are subnormal.
template <typename BitsT, int Mantissa, int Bias, BitsT MaxFinite, bool HasInf,
          BitsT MinNormal = BitsT{1} << Mantissa>
struct FloatElement {
  using Bits = BitsT;
  static constexpr bool kFloat = true;
  static constexpr bool kSigned = true;
  static constexpr bool kWide = sizeof(Bits) == 8;
  using Key = std::conditional_t<kWide, int64_t, int32_t>;
  using Magnitude = std::conditional_t<kWide, uint64_t, uint32_t>;
  using Signed = std::make_signed_t<Bits>;

  static constexpr int kMantissa = Mantissa;
  static constexpr int kBias = Bias;
  static constexpr bool kHasInf = HasInf;
  static constexpr Magnitude kMagnitudeMask = static_cast<Bits>(~Bits{0}) >> 1;
  static constexpr Magnitude kMaxFinite = MaxFinite;
  static constexpr Magnitude kMinNormal = MinNormal;
  static constexpr Magnitude kUsual = kMinNormal;  ///< below are zero and subnormals

  CONVTRACE_HD static Magnitude magnitude(Bits bits) { return bits & kMagnitudeMask; }
  CONVTRACE_HD static bool negative(Bits bits) { return static_cast<Signed>(bits) < 0; }
  CONVTRACE_HD static bool finite(Bits bits) { return magnitude(bits) <= kMaxFinite; }
  CONVTRACE_HD static bool infinite(Bits bits) {
    return HasInf && magnitude(bits) == kMaxFinite + 1;
  }
  CONVTRACE_HD static bool nan(Bits bits) {
    return magnitude(bits) > kMaxFinite + (HasInf ? 1 : 0);
  }
  CONVTRACE_HD static bool subnormal(Bits bits) {
    return static_cast<Magnitude>(magnitude(bits) - 1) < kMinNormal - 1;
  }
  CONVTRACE_HD static bool saturated(Bits bits) { return magnitude(bits) == kMaxFinite; }

  /// Sign-magnitude to two's complement: orders all finite values, -0 (key -1) below +0 (key 0).
  CONVTRACE_HD static Key key(Bits bits) {
    const Key wide = static_cast<Signed>(bits);
    return wide < 0 ? static_cast<Key>(wide ^ static_cast<Key>(kMagnitudeMask)) : wide;
  }
  CONVTRACE_HD static Bits bits_of_key(Key key) {
    return static_cast<Bits>(key < 0 ? key ^ static_cast<Key>(kMagnitudeMask) : key);
  }
  /// @return whether elements with these extreme keys include a saturated, infinite or NaN one.
  CONVTRACE_HD static bool reaches_limits(Key lowest, Key highest) {
    const Key largest = highest > ~lowest ? highest : ~lowest;  // the key of -x is ~x
    return largest >= static_cast<Key>(kMaxFinite);
  }

  /// Exact value of a finite element. Types of 16 bits and less are placed in an f32 and scaled by
  /// a power of two, which also turns their subnormals into normal numbers.
  CONVTRACE_HD static double value(Bits bits) {
    if constexpr (sizeof(Bits) == 8) {
      return __builtin_bit_cast(double, bits);
    } else {
      return static_cast<double>(narrow_value(bits));
    }
  }

  /// The same of types of up to 32 bits, where f32 holds it.
  CONVTRACE_HD static float narrow_value(Bits bits) {
    static_assert(sizeof(Bits) <= 4);
    if constexpr (sizeof(Bits) == 4) {
      return __builtin_bit_cast(float, bits);
    } else {
      constexpr float kScale = __builtin_bit_cast(float, static_cast<uint32_t>((254 - Bias) << 23));
      const uint32_t sign = static_cast<uint32_t>(negative(bits)) << 31;
      const uint32_t shifted = static_cast<uint32_t>(magnitude(bits)) << (23 - Mantissa);
      return __builtin_bit_cast(float, sign | shifted) * kScale;
    }
  }
};

/// An integer type; `Bool` reads any non-zero byte as 1 and is never saturated.
template <typename Int, bool Bool = false>
struct IntElement {
  using Bits = std::make_unsigned_t<Int>;
  static constexpr bool kFloat = false;
  static constexpr bool kWide = sizeof(Int) == 8;
  static constexpr bool kSigned = std::is_signed_v<Int>;
  using Key = std::conditional_t<kWide, int64_t, int32_t>;
  using Magnitude = std::conditional_t<kWide, uint64_t, uint32_t>;
  static constexpr Magnitude kUsual = 1;  ///< below is zero
  /// Holds every value of the type and, for narrow types, differences of two.
  using Value =
      std::conditional_t<kWide, Int, std::conditional_t<sizeof(Int) == 4, int64_t, int32_t>>;
  /// Added to unsigned 32 and 64 bit values so that signed keys order them.
  static constexpr Magnitude kKeyFlip =
      !kSigned && sizeof(Int) >= 4 ? Magnitude{1} << (sizeof(Int) * 8 - 1) : 0;

  CONVTRACE_HD static Value value(Bits bits) {
    if constexpr (Bool) return bits != 0 ? 1 : 0;
    return static_cast<Int>(bits);
  }
  CONVTRACE_HD static Key key(Bits bits) {
    if constexpr (kKeyFlip != 0) return static_cast<Key>(bits ^ kKeyFlip);
    return static_cast<Key>(value(bits));
  }
  CONVTRACE_HD static Bits bits_of_key(Key key) {
    return static_cast<Bits>(static_cast<Magnitude>(key) ^ kKeyFlip);
  }
  /// @return whether elements with these extreme keys include a saturated one. The zeros of an unsigned
  /// type do not count.
  CONVTRACE_HD static bool reaches_limits(Key lowest, Key highest) {
    if constexpr (Bool) return false;
    using Limits = std::numeric_limits<Int>;
    return highest == key(static_cast<Bits>(Limits::max())) ||
           (kSigned && lowest == key(static_cast<Bits>(Limits::min())));
  }
  CONVTRACE_HD static Magnitude magnitude(Bits bits) {
    const auto plain = static_cast<Magnitude>(value(bits));
    return negative(bits) ? static_cast<Magnitude>(0 - plain) : plain;
  }
  CONVTRACE_HD static bool negative(Bits bits) { return kSigned && static_cast<Int>(bits) < 0; }
  CONVTRACE_HD static bool finite(Bits) { return true; }
  CONVTRACE_HD static bool infinite(Bits) { return false; }
  CONVTRACE_HD static bool subnormal(Bits) { return false; }
  CONVTRACE_HD static bool saturated(Bits bits) {
    if constexpr (Bool) return false;
    return static_cast<Int>(bits) == std::numeric_limits<Int>::max() ||
           static_cast<Int>(bits) == std::numeric_limits<Int>::min();
  }
};

template <DType D>
struct Element;
template <>
struct Element<DType::kF64> : FloatElement<uint64_t, 52, 1023, 0x7FEFFFFFFFFFFFFF, true> {};
template <>
struct Element<DType::kF32> : FloatElement<uint32_t, 23, 127, 0x7F7FFFFF, true> {};
template <>
struct Element<DType::kF16> : FloatElement<uint16_t, 10, 15, 0x7BFF, true> {};
template <>
struct Element<DType::kBF16> : FloatElement<uint16_t, 7, 127, 0x7F7F, true> {};
template <>
struct Element<DType::kF8E4M3FN> : FloatElement<uint8_t, 3, 7, 0x7E, false> {};
template <>
struct Element<DType::kF8E5M2> : FloatElement<uint8_t, 2, 15, 0x7B, true> {};
/// The half of a byte that holds the value, above four zeros (unpack.h).
template <>
struct Element<DType::kF4E2M1FN> : FloatElement<uint8_t, 5, 1, 0x70, false> {};
/// As bf16 (unpack.h), where 2^-127 alone has no exponent: it is normal here.
template <>
struct Element<DType::kF8E8M0FNU> : FloatElement<uint16_t, 7, 127, 0x7F00, false, 0x40> {};
template <>
struct Element<DType::kI8> : IntElement<int8_t> {};
template <>
struct Element<DType::kU8> : IntElement<uint8_t> {};
template <>
struct Element<DType::kI16> : IntElement<int16_t> {};
template <>
struct Element<DType::kU16> : IntElement<uint16_t> {};
template <>
struct Element<DType::kI32> : IntElement<int32_t> {};
template <>
struct Element<DType::kU32> : IntElement<uint32_t> {};
template <>
struct Element<DType::kI64> : IntElement<int64_t> {};
template <>
struct Element<DType::kU64> : IntElement<uint64_t> {};
template <>
struct Element<DType::kBool> : IntElement<uint8_t, true> {};

/// Types whose elements are taken wider than they lie in memory (unpack.h).
template <DType D>
inline constexpr bool kUnpacked = D == DType::kF4E2M1FN || D == DType::kF8E8M0FNU;

/// Bytes that a byte of memory becomes.
template <DType D>
inline constexpr uint32_t kSpread = kUnpacked<D> ? 2 : 1;

/// @return bytes of Element<D>::Bits of a walked type.
CONVTRACE_HD constexpr uint32_t taken_bytes(DType dtype) {
  return format::element_bytes(dtype) * (dtype == DType::kF8E8M0FNU ? 2 : 1);
}
#define CONVTRACE_X(D) static_assert(taken_bytes(DType::D) == sizeof(Element<DType::D>::Bits));
CONVTRACE_WALKED_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X

}  // namespace convtrace::stats

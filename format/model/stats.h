#pragma once
/// @file stats.h
/// The statistics of one tensor as they are stored and compared: plain numbers, no arithmetic.
///
/// Place:    filled by cupti/stats/ (the only place that computes them), carried by events.h,
///           compared by tools/diff.
/// Source:   definitions in docs/recording.md "Statistics" and format/FORMAT.md "TensorStats".

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "format/model/fields.h"

namespace convtrace::format {

/// 8 bytes whose reading follows from number_class(dtype): f64 for floats; for signed integers i64
/// (min, max) or u64 (amax, amin_nonzero, which can be 2^63); u64 for unsigned integers and bool.
struct Scalar {
  uint64_t bits = 0;

  static constexpr Scalar f64(double v) { return {std::bit_cast<uint64_t>(v)}; }
  static constexpr Scalar i64(int64_t v) { return {std::bit_cast<uint64_t>(v)}; }
  static constexpr Scalar u64(uint64_t v) { return {v}; }
  [[nodiscard]] constexpr double as_f64() const { return std::bit_cast<double>(bits); }
  [[nodiscard]] constexpr int64_t as_i64() const { return std::bit_cast<int64_t>(bits); }
  [[nodiscard]] constexpr uint64_t as_u64() const { return bits; }
  constexpr bool operator==(const Scalar&) const = default;
};

/// Tensors of up to so many elements (a complex one counts two) have all their values among the
/// samples and need no sketch.
inline constexpr uint64_t kMaxWhole = 16;

/// 16 bytes: f64 bits in `lo` (hi = 0) for floats, a two's complement 128-bit integer for integers
/// and bool.
struct WideScalar {
  uint64_t lo = 0;
  uint64_t hi = 0;

  static constexpr WideScalar f64(double v) { return {std::bit_cast<uint64_t>(v), 0}; }
  [[nodiscard]] constexpr double as_f64() const { return std::bit_cast<double>(lo); }
  constexpr bool operator==(const WideScalar&) const = default;
};

/// Signed sums of a float tensor's elements in 16 buckets. Which bucket an element adds to, and
/// with which sign, follows from its logical index alone, so sketches of two runs may be
/// subtracted: the sum of squared bucket differences estimates |a - b|^2.
///
/// The sum of bucket b is bucket[b] * 2^exponent; the largest |bucket[b]| is in [0.5, 1), or all
/// are 0 and so is the exponent. Elements that are not finite count as 0. Source: format/FORMAT.md
/// "Sketches".
struct Sketch {
  static constexpr size_t kBuckets = 16;
  static constexpr int16_t kNone = INT16_MIN;

  int16_t exponent = kNone;  ///< kNone: there is no sketch
  std::array<float, kBuckets> bucket{};

  [[nodiscard]] constexpr bool is_known() const { return exponent != kNone; }
  constexpr bool operator==(const Sketch&) const = default;
};

/// Everything known about the values of one tensor.
///
/// Counts are exact: positive + negative + pos_zero + neg_zero + nan == count (infinities count by
/// their sign too) and finite + nan + pos_inf + neg_inf == count. `subnormal` and `saturated` are
/// subsets. min, max, amax and amin_nonzero are over finite values, exact, and NaN (floats) or 0
/// (integers) when there are none. Complex tensors are described by their real view: count is twice
/// the number of complex elements; that of f4e2m1fn is twice the number of bytes.
struct Stats {
  uint64_t count = 0;
  uint64_t finite = 0;
  uint64_t nan = 0;
  uint64_t pos_inf = 0;
  uint64_t neg_inf = 0;
  uint64_t pos_zero = 0;
  uint64_t neg_zero = 0;
  uint64_t positive = 0;
  uint64_t negative = 0;
  uint64_t subnormal = 0;
  uint64_t saturated = 0;
  Scalar min, max, amax, amin_nonzero;
  WideScalar sum, l1;
  double l2 = 0;    ///< sqrt(sum of squares)
  double mean = 0;  ///< sum / finite
  double std = 0;   ///< population standard deviation
  uint64_t hash = 0;
  Sketch sketch{};  ///< set for float tensors of more than kMaxWhole elements
  constexpr bool operator==(const Stats&) const = default;
  /// The numbers that a device or the CPU computes, in the order of their columns.
  static constexpr void fields(auto& e, const auto& visit) {
    visit(kPart<0>, "finite", e.finite);
    visit(kPart<1>, "nan", e.nan);
    visit(kPart<2>, "pos_inf", e.pos_inf);
    visit(kPart<3>, "neg_inf", e.neg_inf);
    visit(kPart<4>, "pos_zero", e.pos_zero);
    visit(kPart<5>, "neg_zero", e.neg_zero);
    visit(kPart<6>, "positive", e.positive);
    visit(kPart<7>, "negative", e.negative);
    visit(kPart<8>, "subnormal", e.subnormal);
    visit(kPart<9>, "saturated", e.saturated);
    visit(kPart<10>, "min", e.min);
    visit(kPart<11>, "max", e.max);
    visit(kPart<12>, "amax", e.amax);
    visit(kPart<13>, "amin_nonzero", e.amin_nonzero);
    visit(kPart<14>, "sum_lo", e.sum.lo);
    visit(kPart<15>, "sum_hi", e.sum.hi);
    visit(kPart<16>, "l1_lo", e.l1.lo);
    visit(kPart<17>, "l1_hi", e.l1.hi);
    visit(kPart<18>, "l2", e.l2);
    visit(kPart<19>, "mean", e.mean);
    visit(kPart<20>, "deviation", e.std);
  }
};

}  // namespace convtrace::format

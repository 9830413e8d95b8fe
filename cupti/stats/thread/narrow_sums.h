#pragma once
/// @file narrow_sums.h
/// The floating sums of f32 of one thread without arithmetic in f64: variant 1, for GPUs where f64
/// is 32 or 64 times slower than f32.
///
/// Each sum is a pair of f32 numbers: the sum and its accumulated rounding error. Products and
/// deviations are computed with their rounding errors, too. The range of f32 does not hold the squares of
/// very large and very small values, so values are scaled by a power of two, which grows with the largest
/// value. Values that underflow by that are below 2^-60 of the largest.
///
/// Accuracy: a pair has 48 bits; a sum of m values is off by at most m^2 * 2^-48 of the sum of
///           magnitudes, m = elements of a tile / 64, and typically by 2^-45. Tested to 1e-9 on the
///           seven distributions of the reference (tests/unit/cupti/stats/variant_test.cpp); 1e-6
///           is promised.
/// Threads:  a value; the same bits on a device and in its host replay.
/// Source:   D. Knuth, "The Art of Computer Programming" 4.2.2 (sums); T. Dekker, "A floating-point
///           technique for extending the available precision" (1971).

#include <cstdint>

#include "cupti/stats/thread/thread_totals.h"
#include "cupti/stats/thread/wide_sums.h"
#include "cupti/stats/tile/arith.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

template <DType D>
inline constexpr bool kHasNarrowSums = D == DType::kF32;

/// A number as the sum of two.
struct Pair {
  float high = 0;
  float low = 0;
};

CONVTRACE_HD Pair exact_sum(float a, float b) {
  const float sum = add(a, b);
  const float of_b = sub(sum, a);
  return {sum, add(sub(a, sub(sum, of_b)), sub(b, of_b))};
}

struct PairSum {
  Pair sum;

  CONVTRACE_HD void add_pair(Pair term) {
    const Pair both = exact_sum(sum.high, term.high);
    sum = {both.high, add(sum.low, add(both.low, term.low))};
  }
  CONVTRACE_HD void scale(float factor) { sum = {mul(sum.high, factor), mul(sum.low, factor)}; }
  CONVTRACE_HD double total(double factor) const {
    return mul(add(static_cast<double>(sum.high), static_cast<double>(sum.low)), factor);
  }
};

class NarrowSums {
 public:
  static constexpr DType kType = DType::kF32;
  using E = Element<kType>;
  using Bits = E::Bits;
  static constexpr bool kDeviates = true;

  CONVTRACE_HD explicit NarrowSums(Shift<kType> shift)
      : unscaled_(static_cast<float>(shift.value)) {
    make_room(magnitude(unscaled_));
    shift_ = mul(unscaled_, scale_);
  }

  /// @param chunk  of finite elements.
  CONVTRACE_HD void add_usual(const Chunk& chunk) {
    constexpr uint32_t kCount = kChunkGroups * kPerGroup<kType>;
    const auto bits_of = [&](uint32_t i) {
      return element_of<kType>(chunk.group[i / kPerGroup<kType>], i % kPerGroup<kType>);
    };
    float peak = 0;
    CONVTRACE_UNROLLED
    for (uint32_t i = 0; i < kCount; ++i) {
      const float here = magnitude(E::narrow_value(bits_of(i)));
      peak = here > peak ? here : peak;
    }
    make_room(peak);
    CONVTRACE_UNROLLED
    for (uint32_t i = 0; i < kCount; ++i) add_element(bits_of(i));
  }

  /// @param left  elements of the tile from the chunk's first one on.
  CONVTRACE_HD void add_any(const Chunk& chunk, uint32_t left) {
    float peak = 0;
    for_each_finite<kType>(chunk, left, [&](Bits bits, uint32_t) {
      const float here = magnitude(E::narrow_value(bits));
      peak = here > peak ? here : peak;
    });
    make_room(peak);
    for_each_finite<kType>(chunk, left, [&](Bits bits, uint32_t) { add_element(bits); });
  }

  CONVTRACE_HD void put_into(ThreadTotals& totals) const {
    const double factor = power_of_two(exponent_);
    const double squared = mul(factor, factor);
    totals.sum = sum_.total(factor);
    totals.l1 = l1_.total(factor);
    totals.squares = squares_.total(squared);
    totals.deviations = deviations_.total(factor);
    totals.squared_deviations = squared_deviations_.total(squared);
  }

 private:
  CONVTRACE_HD void add_element(Bits bits) {
    const float x = mul(E::narrow_value(bits), scale_);
    sum_.add_pair({x, 0});
    l1_.add_pair({magnitude(x), 0});
    squares_.add_pair(square_of({x, 0}));
    const Pair deviation = exact_sum(x, -shift_);
    deviations_.add_pair(deviation);
    squared_deviations_.add_pair(square_of(deviation));
  }

  CONVTRACE_HD void make_room(float peak) {
    while (peak >= limit_) raise();
  }

  /// The largest value lies between 2^-30 and 2^32 when scaled: squares keep their lower half
  /// above the smallest f32, and sums of 2^60 of them stay below the largest.
  static constexpr int kStep = 62;
  static constexpr int kLowest = -2 * kStep;  ///< for 2^-149, the smallest f32

  CONVTRACE_HD static double power_of_two(int exponent) {
    return __builtin_bit_cast(double, static_cast<uint64_t>(1023 + exponent) << 52);
  }
  CONVTRACE_HD static float narrow_power_of_two(int exponent) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(127 + exponent) << 23);
  }

  CONVTRACE_HD static Pair square_of(Pair x) {
    const float square = mul(x.high, x.high);
    const float rest = fma(x.high, x.high, -square);
    return {square, fma(add(x.high, x.high), x.low, rest)};
  }

  /// Rare: values grow past the limit at most four times.
  CONVTRACE_HD void raise() {
    const float down = narrow_power_of_two(-kStep);
    const float twice_down = narrow_power_of_two(-2 * kStep);
    exponent_ += kStep;
    scale_ = mul(scale_, down);
    limit_ = mul(limit_, narrow_power_of_two(kStep));  // beyond f32: infinity
    shift_ = mul(unscaled_, scale_);
    sum_.scale(down);
    l1_.scale(down);
    deviations_.scale(down);
    squares_.scale(twice_down);
    squared_deviations_.scale(twice_down);
  }

  int exponent_ = kLowest;  ///< values are scaled by 2^-exponent
  float scale_ = narrow_power_of_two(-kLowest);
  float limit_ = narrow_power_of_two(32 + kLowest);
  float unscaled_;  ///< the shift
  float shift_ = 0;
  PairSum sum_, l1_, squares_, deviations_, squared_deviations_;
};

}  // namespace convtrace::stats

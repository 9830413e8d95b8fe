#pragma once
/// @file thread_totals.h
/// Totals of one thread of a tile, in one form for all ways of summing, and the shift that deviations
/// are taken from.

#include <cstdint>
#include <type_traits>

#include "cupti/stats/tile/dtype_decode.h"
#include "cupti/stats/tile/hash.h"
#include "cupti/stats/tile/partial.h"

namespace convtrace::stats {

/// A tile's shift in the two parts that Moments keeps.
struct ShiftParts {
  double high = 0;
  double low = 0;
};

/// True: deviations of a type are taken from a value of the tile. Shorter types need no shift
/// (chunk_sums.h, exact_sums.h).
template <DType D>
inline constexpr bool kHasShift = sizeof(typename Element<D>::Bits) >= 4;

/// The value that a tile's deviations are taken from: 0 or one of its elements.
template <DType D, bool Float = Element<D>::kFloat>
struct Shift {
  double value = 0;
  CONVTRACE_HD static Shift of(typename Element<D>::Bits bits) { return {Element<D>::value(bits)}; }
  CONVTRACE_HD double deviation(double x) const { return sub(x, value); }
  CONVTRACE_HD ShiftParts parts() const { return {value, 0}; }
};

/// Integers subtract exactly before they are rounded to f64 once.
template <DType D>
struct Shift<D, false> {
  using Value = typename Element<D>::Value;
  Value value = 0;
  CONVTRACE_HD static Shift of(typename Element<D>::Bits bits) { return {Element<D>::value(bits)}; }
  using Whole = std::conditional_t<Element<D>::kWide, Value, int64_t>;  ///< has an upper half
  CONVTRACE_HD static double upper(Whole x) { return static_cast<double>(x >> 32); }
  CONVTRACE_HD static double lower(Whole x) { return static_cast<double>(x & 0xFFFFFFFF); }
  CONVTRACE_HD double deviation(Value x) const {
    if constexpr (Element<D>::kWide) {
      return fma(sub(upper(x), upper(value)), 4294967296.0, sub(lower(x), lower(value)));
    } else {
      return static_cast<double>(x - value);
    }
  }
  CONVTRACE_HD ShiftParts parts() const { return {mul(upper(value), 4294967296.0), lower(value)}; }
};

/// Number of elements that decide whether a tile's values lie on both sides of zero: one load of a warp.
inline constexpr uint32_t kLeadingElements = 32;

/// Signs of a tile's first elements, which decide its shift. Where they lie on both sides of zero the
/// shift is 0: the deviation is at least mean / sqrt(n) then, so that no more than log2(n) bits of
/// it are lost, and three sums are enough instead of five.
struct LeadingSigns {
  bool above = false;  ///< there is a finite element that is 0 or more
  bool below = false;  ///< there is a finite element that is 0 or less

  template <DType D>
  CONVTRACE_HD void add(typename Element<D>::Bits bits) {
    using E = Element<D>;
    if (!E::finite(bits)) return;
    above |= !E::negative(bits) || E::magnitude(bits) == 0;
    below |= E::negative(bits) || E::magnitude(bits) == 0;
  }
  [[nodiscard]] CONVTRACE_HD bool any() const { return above || below; }
  [[nodiscard]] CONVTRACE_HD bool both() const { return above && below; }
};

/// @param element  `element(i)` gives the bits of element i of the tile. @return the tile's shift.
template <DType D, typename ElementAt>
CONVTRACE_HD Shift<D> shift_of(uint64_t count, ElementAt element) {
  if constexpr (!kHasShift<D>) return {};
  LeadingSigns leading;
  for (uint64_t i = 0; i < count && i < kLeadingElements && !leading.both(); ++i)
    leading.add<D>(element(i));
  if (leading.both()) return {};
  for (uint64_t i = 0; i < count; ++i) {
    if (Element<D>::finite(element(i))) return Shift<D>::of(element(i));
  }
  return {};
}

/// Sum of integers in 64-bit pieces that cannot overflow within a tile: total = high * 2^32 + low.
struct IntSum {
  int64_t high = 0;
  int64_t low = 0;

  /// @tparam Wide  whether values may have more than 33 bits.
  template <bool Wide, typename Int>
  CONVTRACE_HD void add(Int value) {
    if constexpr (Wide) {
      high += static_cast<int64_t>(value >> 32);
      low += static_cast<int64_t>(value & 0xFFFFFFFF);
    } else {
      low += static_cast<int64_t>(value);
    }
  }
  CONVTRACE_HD void add(const IntSum& other) {
    high += other.high;
    low += other.low;
  }
  CONVTRACE_HD UInt128 total() const {
    return (static_cast<UInt128>(static_cast<Int128>(high)) << 32) +
           static_cast<UInt128>(static_cast<Int128>(low));
  }
};

/// Counts of Counts (partial.h) within a tile, where 32 bits are enough.
struct TileCounts {
  uint32_t nan = 0, pos_inf = 0, neg_inf = 0, pos_zero = 0, neg_zero = 0, negative = 0;
  uint32_t subnormal = 0, saturated = 0;

  CONVTRACE_HD void add(const TileCounts& other) {
    nan += other.nan;
    pos_inf += other.pos_inf;
    neg_inf += other.neg_inf;
    pos_zero += other.pos_zero;
    neg_zero += other.neg_zero;
    negative += other.negative;
    subnormal += other.subnormal;
    saturated += other.saturated;
  }
};

/// Combines the accumulators of one thread.
template <uint32_t Lanes>
CONVTRACE_HD double combine_lanes(const double (&lane)[Lanes]) {
  static_assert(Lanes == 2 || Lanes == 4);
  if constexpr (Lanes == 2) return add(lane[0], lane[1]);
  return add(add(lane[0], lane[2]), add(lane[1], lane[3]));
}

/// Everything of a thread, its accumulators already combined.
struct ThreadTotals {
  TileCounts counts;
  Extremes extremes;
  double sum = 0, l1 = 0, squares = 0;
  double deviations = 0;  ///< floats; for integers it follows from their sum
  double squared_deviations = 0;
  IntSum int_sum, int_l1;
  uint64_t int_squares = 0;  ///< integers of up to 16 bits: replaces `squares`
  uint64_t hash = 0;         ///< as in Partial
};

CONVTRACE_HD ThreadTotals combine(ThreadTotals a, const ThreadTotals& b) {
  a.counts.add(b.counts);
  a.extremes = merge(a.extremes, b.extremes);
  a.sum = add(a.sum, b.sum);
  a.l1 = add(a.l1, b.l1);
  a.squares = add(a.squares, b.squares);
  a.deviations = add(a.deviations, b.deviations);
  a.squared_deviations = add(a.squared_deviations, b.squared_deviations);
  a.int_sum.add(b.int_sum);
  a.int_l1.add(b.int_l1);
  a.int_squares += b.int_squares;
  a.hash = residue_sum(a.hash, b.hash);
  return a;
}

}  // namespace convtrace::stats

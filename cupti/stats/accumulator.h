#pragma once
/// @file accumulator.h
/// What one thread of a tile gathers, and how 64 of them become the tile's Partial.
///
/// Place:    run as it is by a device thread; the vector code of the CPU computes the same sums in
/// the same order.
/// Exactness: counts, extremes, hashes and integer sums do not depend on order. Floating sums do:
/// rows ascending, elements of a group into accumulator e mod kLanes, accumulators and threads
/// combined in the trees below.
/// Accuracy:  a sum of m values in f64 is off by at most (m + 8) * 2^-53 of the sum of magnitudes,
/// m = elements of a tile / 256; squares of types up to 32 bits are exact in f64.

#include <cstdint>

#include "cupti/stats/dtype_decode.h"
#include "cupti/stats/hash.h"
#include "cupti/stats/partial.h"
#include "cupti/stats/tiling.h"

namespace convtrace::stats {

/// 16 bytes of the logical stream as 4 words; bytes behind the tensor's end are zero.
struct Group {
  uint32_t word[4] = {};
};

template <DType D>
CONVTRACE_HD typename Element<D>::Bits element_of(const Group& group, uint32_t e) {
  using Bits = typename Element<D>::Bits;
  if constexpr (sizeof(Bits) == 8) {
    return (static_cast<uint64_t>(group.word[2 * e + 1]) << 32) | group.word[2 * e];
  } else {
    constexpr uint32_t kPerWord = 4 / sizeof(Bits);
    return static_cast<Bits>(group.word[e / kPerWord] >> (e % kPerWord * sizeof(Bits) * 8));
  }
}

/// A tile's shift in the two parts that Moments keeps.
struct ShiftParts {
  double high = 0;
  double low = 0;
};

/// The value that a tile's deviations are taken from: its first finite element, 0 if it has none.
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
  CONVTRACE_HD static double upper(Value x) { return static_cast<double>(x >> 32); }
  CONVTRACE_HD static double lower(Value x) { return static_cast<double>(x & 0xFFFFFFFF); }
  CONVTRACE_HD double deviation(Value x) const {
    if constexpr (Element<D>::kWide) {
      return fma(sub(upper(x), upper(value)), 4294967296.0, sub(lower(x), lower(value)));
    } else {
      return static_cast<double>(x - value);
    }
  }
  CONVTRACE_HD ShiftParts parts() const { return {mul(upper(value), 4294967296.0), lower(value)}; }
};

/// Sum of integers in 64-bit pieces that cannot overflow within a tile: total = high * 2^32 + low.
struct IntSum {
  int64_t high = 0;
  int64_t low = 0;

  template <typename Int>
  CONVTRACE_HD void add(Int value) {
    if constexpr (sizeof(Int) == 8) {
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

/// Everything of a thread, its accumulators already combined.
struct ThreadTotals {
  TileCounts counts;
  Extremes extremes;
  double sum = 0, l1 = 0, squares = 0, deviations = 0, squared_deviations = 0;
  IntSum int_sum, int_l1;
  uint64_t hash = 0;
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
  a.hash += b.hash;
  return a;
}

/// What does not depend on order: counts and extremes of elements of one type.
template <DType D>
struct Tally {
  using E = Element<D>;
  using Bits = typename E::Bits;
  using Key = typename E::Key;
  using Magnitude = typename E::Magnitude;
  static constexpr Key kMaxKey = sizeof(Key) == 8 ? static_cast<Key>(INT64_MAX) : INT32_MAX;
  static constexpr auto kNoneBelow = static_cast<Magnitude>(~Magnitude{0});

  TileCounts counts;
  Key min_key = kMaxKey;
  Key max_key = -kMaxKey - 1;
  /// Smallest magnitude less one, which puts zero last.
  Magnitude min_below = kNoneBelow;

  CONVTRACE_HD void add(Bits bits) {
    const bool negative = E::negative(bits);
    if (!E::finite(bits)) {
      const bool infinite = E::infinite(bits);
      counts.nan += !infinite;
      counts.pos_inf += infinite && !negative;
      counts.neg_inf += infinite && negative;
      counts.negative += infinite && negative;
      return;
    }
    const Magnitude magnitude = E::magnitude(bits);
    counts.subnormal += E::subnormal(bits);
    counts.saturated += E::saturated(bits);
    counts.pos_zero += magnitude == 0 && !negative;
    counts.neg_zero += magnitude == 0 && negative;
    counts.negative += magnitude != 0 && negative;
    add_extremes(E::key(bits), E::key(bits), static_cast<Magnitude>(magnitude - 1));
  }

  CONVTRACE_HD void add_extremes(Key min, Key max, Magnitude below) {
    min_key = min < min_key ? min : min_key;
    max_key = max > max_key ? max : max_key;
    min_below = below < min_below ? below : min_below;
  }

  CONVTRACE_HD Extremes extremes() const {
    if (min_key > max_key) return {};
    return {min_key, max_key, min_below == kNoneBelow ? UINT64_MAX : uint64_t{min_below}};
  }
};

/// Combines the accumulators of one thread.
template <uint32_t Lanes>
CONVTRACE_HD double combine_lanes(const double (&lane)[Lanes]) {
  static_assert(Lanes == 2 || Lanes == 4);
  if constexpr (Lanes == 2) return add(lane[0], lane[1]);
  return add(add(lane[0], lane[2]), add(lane[1], lane[3]));
}

template <DType D>
class ThreadAccumulator {
 public:
  using E = Element<D>;
  using Bits = typename E::Bits;

  /// @param shift of the tile. @param thread 0..63, whose groups will be added.
  CONVTRACE_HD ThreadAccumulator(Shift<D> shift, uint32_t thread) : shift_(shift) {
    for (uint32_t i = 0; i < 4; ++i) word_keys_[i] = word_key(thread * 4 + i);
  }

  /// @param row   of the tensor, not of the tile. @param valid elements that exist, from the front.
  CONVTRACE_HD void add_group(const Group& group, uint64_t row, uint32_t valid) {
    add_hash(group, row);
    for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
      if (e < valid) add_element(element_of<D>(group, e), e % kLanes<D>);
    }
  }

  CONVTRACE_HD void add_hash(const Group& group, uint64_t row) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 4; ++i) sum += fold(group.word[i]) * word_keys_[i];
    hash_ += sum * block_key(row);
  }

  CONVTRACE_HD uint64_t hash() const { return hash_; }

  CONVTRACE_HD ThreadTotals totals() const {
    ThreadTotals totals;
    totals.counts = tally_.counts;
    totals.extremes = tally_.extremes();
    totals.sum = combine_lanes(sum_);
    totals.l1 = combine_lanes(l1_);
    totals.squares = combine_lanes(squares_);
    totals.deviations = combine_lanes(deviations_);
    totals.squared_deviations = combine_lanes(squared_deviations_);
    totals.int_sum = int_sum_;
    totals.int_l1 = int_l1_;
    totals.hash = hash_;
    return totals;
  }

 private:
  CONVTRACE_HD void add_element(Bits bits, uint32_t lane) {
    tally_.add(bits);
    if (!E::finite(bits)) return;
    const auto value = E::value(bits);
    const auto x = static_cast<double>(value);
    const double deviation = shift_.deviation(value);
    if constexpr (E::kFloat) {
      sum_[lane] = add(sum_[lane], x);
      l1_[lane] = add(l1_[lane], magnitude(x));
    } else {
      int_sum_.add(value);
      int_l1_.add(E::magnitude(bits));
    }
    squares_[lane] = fma(x, x, squares_[lane]);
    deviations_[lane] = add(deviations_[lane], deviation);
    squared_deviations_[lane] = fma(deviation, deviation, squared_deviations_[lane]);
  }

  Shift<D> shift_;
  uint64_t word_keys_[4];
  uint64_t hash_ = 0;
  Tally<D> tally_;
  IntSum int_sum_, int_l1_;
  double sum_[kLanes<D>] = {};
  double l1_[kLanes<D>] = {};
  double squares_[kLanes<D>] = {};
  double deviations_[kLanes<D>] = {};
  double squared_deviations_[kLanes<D>] = {};
};

/// @param totals of all threads of a tile of `count` elements.
CONVTRACE_HD Partial close_tile(const ThreadTotals& totals, ShiftParts shift, uint64_t count) {
  Partial partial;
  const TileCounts& c = totals.counts;
  partial.counts = {count,      c.nan,      c.pos_inf,   c.neg_inf,  c.pos_zero,
                    c.neg_zero, c.negative, c.subnormal, c.saturated};
  partial.extremes = totals.extremes;
  partial.sum = totals.sum;
  partial.l1 = totals.l1;
  partial.squares = totals.squares;
  store_wide(totals.int_sum.total(), partial.int_sum);
  store_wide(totals.int_l1.total(), partial.int_l1);
  partial.hash = totals.hash;
  if (partial.counts.finite() > 0) {
    const auto n = static_cast<double>(partial.counts.finite());
    const double offset = div(totals.deviations, n);
    const double m2 = fma(-totals.deviations, offset, totals.squared_deviations);
    partial.moments = {n, shift.high, shift.low, offset, m2 < 0 ? 0 : m2};
  }
  return partial;
}

}  // namespace convtrace::stats

#pragma once
/// @file wide_sums.h
/// The sums of one thread in f64 and in integers, for types of 32 and 64 bits: variant 0.
///
/// Place:    accumulator.h; the vector code of the CPU computes the same sums in the same order.

#include <cstdint>

#include "cupti/stats/thread/thread_totals.h"
#include "cupti/stats/tile/arith.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

/// Calls `add(bits, lane)` for the finite elements of a chunk that exist, rows ascending, in code
/// that is small rather than fast. @param left  elements of the tile from the chunk's first one on.
template <DType D, typename Add>
CONVTRACE_HD void for_each_finite(const Chunk& chunk, uint32_t left, Add add) {
  using E = Element<D>;
  chunk.for_each_rolled([&](const Group& group) {
    for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
      const auto bits = element_of<D>(group, e);
      if (e < left && E::finite(bits)) add(bits, e % kLanes<D>);
    }
    left = left > kPerRow<D> ? left - kPerRow<D> : 0;
  });
}

/// @tparam Shifted  whether deviations are taken from another value than 0; those from 0 are the
/// values.
template <DType D, bool Shifted>
class WideSums {
 public:
  using E = Element<D>;
  using Bits = typename E::Bits;
  static constexpr bool kDeviates = Shifted;  ///< deviations are other sums than the values'

  CONVTRACE_HD explicit WideSums(Shift<D> shift) : shift_(shift) {}

  /// @param chunk  of finite elements.
  CONVTRACE_HD void add_usual(const Chunk& chunk) {
    for (const Group& group : chunk.group) {
      for (uint32_t e = 0; e < kPerGroup<D>; ++e) add(element_of<D>(group, e), e % kLanes<D>);
    }
  }

  CONVTRACE_HD void add_any(const Chunk& chunk, uint32_t left) {
    for_each_finite<D>(chunk, left, [&](Bits bits, uint32_t lane) { add(bits, lane); });
  }

  CONVTRACE_HD void put_into(ThreadTotals& totals) const {
    totals.sum = combine_lanes(sum_);
    totals.l1 = combine_lanes(l1_);
    totals.squares = combine_lanes(squares_);
    totals.deviations = Shifted ? combine_lanes(deviations_) : totals.sum;
    totals.squared_deviations = Shifted ? combine_lanes(squared_deviations_) : totals.squares;
    totals.int_sum = int_sum_;
    totals.int_l1 = int_l1_;
  }

 private:
  /// @param bits of a finite element.
  CONVTRACE_HD void add(Bits bits, uint32_t lane) {
    const auto value = E::value(bits);
    const auto x = static_cast<double>(value);
    if constexpr (E::kFloat) {
      sum_[lane] = stats::add(sum_[lane], x);
      l1_[lane] = stats::add(l1_[lane], magnitude(x));
    } else {
      int_sum_.add<E::kWide>(value);
      int_l1_.add<E::kWide>(E::magnitude(bits));
    }
    squares_[lane] = fma(x, x, squares_[lane]);
    if constexpr (Shifted) {
      const double deviation = shift_.deviation(value);
      if constexpr (E::kFloat) deviations_[lane] = stats::add(deviations_[lane], deviation);
      squared_deviations_[lane] = fma(deviation, deviation, squared_deviations_[lane]);
    }
  }

  Shift<D> shift_;
  IntSum int_sum_, int_l1_;
  double sum_[kLanes<D>] = {};
  double l1_[kLanes<D>] = {};
  double squares_[kLanes<D>] = {};
  double deviations_[kLanes<D>] = {};
  double squared_deviations_[kLanes<D>] = {};
};

}  // namespace convtrace::stats

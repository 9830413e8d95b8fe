#pragma once
/// @file wide_sums.h
/// The sums of one thread in f64 and in integers: the reference, variant 0.
///
/// Place:    accumulator.h; the vector code of the CPU computes the same sums in the same order.

#include <cstdint>

#include "cupti/stats/tile/arith.h"
#include "cupti/stats/tile/thread_totals.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

/// Combines the accumulators of one thread.
template <uint32_t Lanes>
CONVTRACE_HD double combine_lanes(const double (&lane)[Lanes]) {
  static_assert(Lanes == 2 || Lanes == 4);
  if constexpr (Lanes == 2) return add(lane[0], lane[1]);
  return add(add(lane[0], lane[2]), add(lane[1], lane[3]));
}

template <DType D>
class WideSums {
 public:
  using E = Element<D>;
  using Bits = typename E::Bits;

  CONVTRACE_HD explicit WideSums(Shift<D> shift) : shift_(shift) {}

  /// To be called before the elements of a group are added.
  CONVTRACE_HD void prepare(const Group&, uint32_t) {}

  /// @param bits of a finite element.
  CONVTRACE_HD void add_element(Bits bits, uint32_t lane) {
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

  CONVTRACE_HD void put_into(ThreadTotals& totals) const {
    totals.sum = combine_lanes(sum_);
    totals.l1 = combine_lanes(l1_);
    totals.squares = combine_lanes(squares_);
    totals.deviations = combine_lanes(deviations_);
    totals.squared_deviations = combine_lanes(squared_deviations_);
    totals.int_sum = int_sum_;
    totals.int_l1 = int_l1_;
  }

 private:
  Shift<D> shift_;
  IntSum int_sum_, int_l1_;
  double sum_[kLanes<D>] = {};
  double l1_[kLanes<D>] = {};
  double squares_[kLanes<D>] = {};
  double deviations_[kLanes<D>] = {};
  double squared_deviations_[kLanes<D>] = {};
};

}  // namespace convtrace::stats

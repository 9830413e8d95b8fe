#pragma once
/// @file accumulator.h
/// What one thread of a tile gathers, and how 64 of them become the tile's Partial.
///
/// Place:     run as it is by a device thread; the vector code of the CPU computes the same sums in
///            the same order.
/// Exactness: counts, extremes, hashes and integer sums do not depend on order. Floating sums do:
///            rows ascending, elements of a group into accumulator e mod kLanes, accumulators and
///            threads combined in the trees below.
/// Accuracy:  a sum of m values in f64 is off by at most (m + 8) * 2^-53 of the sum of magnitudes,
///            m = elements of a tile / 256; squares of types up to 32 bits are exact in f64.

#include <cstdint>

#include "cupti/stats/tile/dtype_decode.h"
#include "cupti/stats/tile/narrow_sums.h"
#include "cupti/stats/tile/partial.h"
#include "cupti/stats/tile/tally.h"
#include "cupti/stats/tile/thread_hash.h"
#include "cupti/stats/tile/thread_totals.h"
#include "cupti/stats/tile/tiling.h"
#include "cupti/stats/tile/wide_sums.h"

namespace convtrace::stats {

/// @tparam Sums  WideSums or NarrowSums: what adds up the values.
template <DType D, typename Sums>
class ThreadAccumulator {
 public:
  using E = Element<D>;
  using Bits = typename E::Bits;

  /// @param shift of the tile. @param thread 0..63, whose groups will be added.
  CONVTRACE_HD ThreadAccumulator(Shift<D> shift, uint32_t thread) : hash_(thread), sums_(shift) {}

  /// @param row of the tile. @param valid elements that exist, from the front.
  CONVTRACE_HD void add_group(const Group& group, uint32_t row, uint32_t valid) {
    hash_.add(group, row);
    add_values(group, valid);
  }

  /// Whole groups. @param row  of the first.
  CONVTRACE_HD void add_chunk(const Chunk& chunk, uint32_t row) {
    // First, since a warp computes it together: which way the rest goes depends on values.
    for (uint32_t i = 0; i < kChunkGroups; ++i) hash_.add(chunk.group[i], row + i);
    if (!tally_.add_usual(chunk)) {
      chunk.for_each_rolled([&](const Group& group) { add_values(group, kPerGroup<D>); });
      return;
    }
    for (uint32_t i = 0; i < kChunkGroups; ++i) {
      const Group& group = chunk.group[i];
      sums_.prepare(group, kPerGroup<D>);
      for (uint32_t e = 0; e < kPerGroup<D>; ++e)
        sums_.add_element(element_of<D>(group, e), e % kLanes<D>);
    }
  }

  CONVTRACE_HD ThreadTotals totals() const {
    ThreadTotals totals;
    totals.counts = tally_.counts;
    totals.extremes = tally_.extremes();
    totals.hash = hash_.sum();
    sums_.put_into(totals);
    return totals;
  }

 private:
  CONVTRACE_HD void add_values(const Group& group, uint32_t valid) {
    sums_.prepare(group, valid);
    for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
      if (e >= valid) continue;
      const Bits bits = element_of<D>(group, e);
      tally_.add(bits);
      if (E::finite(bits)) sums_.add_element(bits, e % kLanes<D>);
    }
  }

  ThreadHash hash_;
  Tally<D> tally_;
  Sums sums_;
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

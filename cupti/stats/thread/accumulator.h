#pragma once
/// @file accumulator.h
/// Gathers the elements of one thread of a tile, and combines the 64 threads into the tile's Partial.
///
/// Place:     run as it is by a device thread; the vector code of the CPU computes the same sums in
///            the same order.
/// Exactness: counts, extremes, hashes and integer sums do not depend on order. Floating sums do:
///            rows ascending, elements of a group into accumulator e mod kLanes (or by the trees of
///            chunk_sums.h), accumulators and threads combined in the trees below.
/// Accuracy:  a sum of m values in f64 is off by at most (m + 8) * 2^-53 of the sum of magnitudes,
///            m = elements of a tile / 256; squares of types up to 32 bits are exact in f64.

#include <cstdint>

#include "cupti/stats/thread/chunk_sums.h"
#include "cupti/stats/thread/exact_sums.h"
#include "cupti/stats/thread/narrow_sums.h"
#include "cupti/stats/thread/tally.h"
#include "cupti/stats/thread/thread_hash.h"
#include "cupti/stats/thread/thread_totals.h"
#include "cupti/stats/thread/wide_sums.h"
#include "cupti/stats/tile/dtype_decode.h"
#include "cupti/stats/tile/partial.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

/// The class that sums the elements of a type. @tparam Shifted  whether the tile's shift is not 0.
template <DType D, bool Shifted>
using SumsOf = std::conditional_t<
    kHasChunkSums<D>, ChunkSums<D>,
    std::conditional_t<kHasExactSums<D>, ExactSums<D>, WideSums<D, Shifted && kHasShift<D>>>>;

/// Stands in for the sketch where it is computed separately.
struct NoSketch {
  CONVTRACE_HD void add(const Chunk& /*chunk*/, uint32_t /*row*/) {}
};

/// Stands in for the hash where elements are unpacked: the hash is over the bytes in memory.
struct NoHash {
  CONVTRACE_HD explicit NoHash(uint32_t /*thread*/) {}
  CONVTRACE_HD void add(const Chunk& /*chunk*/, uint32_t /*row*/, uint32_t /*rows*/ = 0) {}
  CONVTRACE_HD uint64_t sum() const { return 0; }
};

/// @return the chunk with its NaNs and infinities replaced by zeros.
template <DType D>
CONVTRACE_HD Chunk finite_part(const Chunk& chunk) {
  using E = Element<D>;
  using Bits = typename E::Bits;
  constexpr uint32_t kPerWord = sizeof(Bits) < 4 ? 4 / sizeof(Bits) : 1;
  constexpr uint32_t kWordsOf = sizeof(Bits) > 4 ? sizeof(Bits) / 4 : 1;
  return chunk.changed_rolled([](Group group) {
    for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
      if (E::finite(element_of<D>(group, e))) continue;
      for (uint32_t i = 0; i < kWordsOf; ++i) {
        const auto mask = static_cast<uint32_t>(static_cast<Bits>(~Bits{0}));
        group.word[e / kPerWord * kWordsOf + i] &= ~(mask << e % kPerWord * sizeof(Bits) * 8);
      }
    }
    return group;
  });
}

/// @tparam Sums  SumsOf or NarrowSums. @tparam Sketch  ThreadSketch or NoSketch.
template <DType D, typename Sums, typename Sketch>
class ThreadAccumulator {
 public:
  using E = Element<D>;
  using Bits = typename E::Bits;

  /// @param shift of the tile. @param thread 0..63, whose groups will be added.
  CONVTRACE_HD ThreadAccumulator(Shift<D> shift, uint32_t thread, Sketch& sketch)
      : hash_(thread), sums_(shift), sketch_(sketch) {}

  /// Whole groups. @param row  of the first, in the tile.
  CONVTRACE_HD void add_chunk(const Chunk& chunk, uint32_t row) {
    hash_.add(chunk, row);
    const bool usual = tally_.add_usual(chunk);
    // A warp computes hash and sketch together, so all of its threads go one way.
    if (whole_warp(usual)) {
      sums_.add_usual(chunk);
      sketch_.add(chunk, row);
      return;
    }
    if (!usual) tally_.add_any(chunk, UINT32_MAX);
    add_values(chunk, row, UINT32_MAX);
  }

  /// The tile's last rows. @param chunk  zero behind the tile's end. @param rows that there are, in
  /// the tile. @param left  elements of the tile from the chunk's first one on.
  CONVTRACE_HD void add_rest(const Chunk& chunk, uint32_t row, uint32_t rows, uint32_t left) {
    hash_.add(chunk, row, rows);
    tally_.add_any(chunk, left);
    add_values(chunk, row, left);
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
  CONVTRACE_HD static bool whole_warp(bool usual) {
#if defined(__CUDA_ARCH__)
    return __all_sync(0xFFFFFFFF, usual);
#else
    return usual;
#endif
  }

  CONVTRACE_HD void add_values(const Chunk& chunk, uint32_t row, uint32_t left) {
    const Chunk finite = E::kFloat ? finite_part<D>(chunk) : chunk;
    sums_.add_any(kHasChunkSums<D> ? finite : chunk, left);
    sketch_.add(finite, row);
  }

  std::conditional_t<kUnpacked<D>, NoHash, ThreadHash> hash_;
  Tally<D> tally_;
  Sums sums_;
  Sketch& sketch_;
};

/// @return a 128-bit integer as f64: its two halves rounded, then their sum.
CONVTRACE_HD double rounded(Int128 value) {
  const auto bits = static_cast<UInt128>(value < 0 ? -value : value);
  const double number =
      fma(static_cast<double>(static_cast<uint64_t>(bits >> 64)), 18446744073709551616.0,
          static_cast<double>(static_cast<uint64_t>(bits)));
  return value < 0 ? -number : number;
}

/// @param totals of all threads of a tile of `count` elements. @param[out] partial  all but the
/// sketch, which other threads of a device write.
CONVTRACE_HD void close_tile(const ThreadTotals& totals, ShiftParts shift, uint64_t count,
                             DType dtype, Partial& partial) {
  const TileCounts& c = totals.counts;
  partial.counts = {count,      c.nan,      c.pos_inf,   c.neg_inf,  c.pos_zero,
                    c.neg_zero, c.negative, c.subnormal, c.saturated};
  partial.extremes = totals.extremes;
  partial.sum = totals.sum;
  partial.l1 = totals.l1;
  partial.squares = totals.squares;
  const UInt128 int_sum = totals.int_sum.total();
  store_wide(int_sum, partial.int_sum);
  store_wide(totals.int_l1.total(), partial.int_l1);
  partial.hash = totals.hash;
  const uint64_t finite = count - c.nan - c.pos_inf - c.neg_inf;
  if (finite == 0) {
    partial.moments = {};
    return;
  }
  const auto n = static_cast<double>(finite);
  double deviations = totals.deviations;
  double squares = totals.squared_deviations;
  if (format::number_class(dtype) != format::NumberClass::kFloat) {
    const auto upper = static_cast<int64_t>(mul(shift.high, 1.0 / 4294967296.0));
    const Int128 shifts = static_cast<Int128>(upper) * 4294967296 + static_cast<int64_t>(shift.low);
    deviations = rounded(static_cast<Int128>(int_sum) - static_cast<Int128>(count) * shifts);
  }
  if (totals.int_squares != 0) {
    partial.squares = static_cast<double>(totals.int_squares);
    squares = partial.squares;
  }
  const double offset = div(deviations, n);
  const double rest = fma(-offset, n, deviations);  // remainder of the division, exact
  const double m2 = fma(-offset, rest, fma(-deviations, offset, squares));
  partial.moments = {n, shift.high, shift.low, offset, m2 < 0 ? 0 : m2};
}

}  // namespace convtrace::stats

// One tile of a tensor in host memory. Included once per instruction set, by a file that defines
// CONVTRACE_CPU_TILE as the name of its function.
//
// The tile is taken in blocks that stay in the first-level cache, each walked four times: counts
// and extremes, floating sums, sketch, hash. Four simple loops keep their accumulators in
// registers; one loop with all of them would not.
#pragma once

#include <type_traits>

#include "cupti/stats/cpu/cpu_hash.h"
#include "cupti/stats/cpu/cpu_sketch.h"
#include "cupti/stats/cpu/cpu_sums.h"
#include "cupti/stats/cpu/cpu_tally.h"
#include "cupti/stats/cpu/cpu_tile.h"
#include "cupti/stats/cpu/simd.h"
#include "cupti/stats/tile/accumulator.h"
#include "cupti/stats/tile/thread_tile.h"

namespace convtrace::stats {
namespace {

static_assert(kBlockBytes % kTallyRunBytes == 0);

template <DType D>
struct TileState {
  using E = Element<D>;
  using Bits = typename E::Bits;
  static constexpr uint32_t kElementBytes = sizeof(Bits);

  Shift<D> shift;
  Tally<D> tally;
  TileLanes<D> lanes;
  TileSketch<D> sketch;
  IntSum int_sum, int_l1;
  BlockHash hash;

  TileState(Shift<D> first_value, uint64_t first_element)
      : shift(first_value), sketch(first_element) {}

  void add_block(const std::byte* data, uint32_t bytes) {
    const uint32_t rows = bytes / kRowBytes;
    const uint32_t strange_before = tally.counts.nan + tally.counts.pos_inf + tally.counts.neg_inf;
    const uint32_t whole = bytes / kVectorBytes * kVectorBytes;
    for (uint32_t at = 0; at < whole; at += kTallyRunBytes) {
      const uint32_t left = whole - at;
      VectorTally<D>::add_run(data + at, left < kTallyRunBytes ? left : kTallyRunBytes, tally);
    }
    for (uint32_t at = whole; at < bytes; at += kElementBytes) tally.add(load<Bits>(data + at));
    const uint32_t strange = tally.counts.nan + tally.counts.pos_inf + tally.counts.neg_inf;
    if (strange == strange_before) {
      add_rows<D, true>(data, rows, shift, lanes);
      sketch.add_rows(data, rows);
    } else if constexpr (E::kFloat) {
      add_rows<D, false>(data, rows, shift, lanes);
      sketch.add_any(data, rows * kRowBytes);
    }
    const uint32_t done = rows * kRowBytes;
    sketch.add_any(data + done, bytes - done);
    add_part_of_row<D>(data + done, (bytes - done) / kElementBytes, shift, lanes);
    if constexpr (!E::kFloat) add_integers(data, bytes);
  }

  void add_integers(const std::byte* data, uint32_t bytes) {
    IntSum sum, l1;  // local: bytes could alias members, and the loop would stay scalar
    for (uint32_t at = 0; at < bytes; at += kElementBytes) {
      const auto bits = load<Bits>(data + at);
      sum.add(E::value(bits));
      l1.add(E::magnitude(bits));
    }
    int_sum.add(sum);
    int_l1.add(l1);
  }

  Partial close(uint64_t count) {
    ThreadTotals totals;
    totals.counts = tally.counts;
    totals.extremes = tally.extremes();
    totals.sum = combine_all<D>(lanes.sum);
    totals.l1 = combine_all<D>(lanes.l1);
    totals.squares = combine_all<D>(lanes.squares);
    totals.deviations = combine_all<D>(lanes.deviations);
    totals.squared_deviations = combine_all<D>(lanes.squared_deviations);
    totals.int_sum = int_sum;
    totals.int_l1 = int_l1;
    totals.hash = hash.sum();
    Partial partial = close_tile(totals, shift.parts(), count);
    sketch.close(partial.sketch);
    return partial;
  }
};

template <DType D>
Shift<D> find_shift(const Layout& layout, TileExtent tile) {
  using Bits = typename Element<D>::Bits;
  for (uint64_t i = 0; i < tile.count; ++i) {
    Bits bits;
    gather(layout, tile.first + i, 1, reinterpret_cast<std::byte*>(&bits));
    if (Element<D>::finite(bits)) return Shift<D>::of(bits);
  }
  return {};
}

/// Calls `add(data, bytes)` for consecutive blocks of dense bytes of the tile.
template <typename Add>
CONVTRACE_INLINE void for_each_block(const Layout& layout, const Tiling& tiling, uint32_t tile,
                                     Add add) {
  alignas(kVectorBytes) std::byte gathered[kBlockBytes];
  const uint32_t size = format::element_bytes(layout.dtype);
  const uint64_t begin = tile * tiling.tile_bytes;
  const uint64_t end = begin + tile_length(tiling, tile);
  for (uint64_t at = begin; at < end; at += kBlockBytes) {
    const auto bytes = static_cast<uint32_t>(end - at < kBlockBytes ? end - at : kBlockBytes);
    const std::byte* data = layout.data + at;
    if (layout.rank != 0) {
      gather(layout, at / size, bytes / size, gathered);
      data = gathered;
    }
    add(data, bytes);
  }
}

template <DType D>
Partial tile_of(const Layout& layout, const Tiling& tiling, uint32_t tile) {
  const TileExtent extent = tile_extent<D>(tiling, tile);
  TileState<D> state(find_shift<D>(layout, extent), extent.first);
  for_each_block(layout, tiling, tile, [&](const std::byte* data, uint32_t bytes) {
    state.add_block(data, bytes);
    state.hash.add(data, bytes);
  });
  return state.close(extent.count);
}

}  // namespace

Partial CONVTRACE_CPU_TILE(const Layout& layout, const Tiling& tiling, uint32_t tile,
                           bool hash_only) noexcept {
  if (hash_only) {
    BlockHash hash;
    for_each_block(layout, tiling, tile,
                   [&](const std::byte* data, uint32_t bytes) { hash.add(data, bytes); });
    Partial partial;
    partial.hash = hash.sum();
    return partial;
  }
  switch (layout.dtype) {
#define CONVTRACE_X(D) \
  case DType::D:       \
    return tile_of<DType::D>(layout, tiling, tile);
    CONVTRACE_WALKED_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
    default:
      return {};
  }
}

}  // namespace convtrace::stats

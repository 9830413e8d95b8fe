// One tile of a tensor in host memory. Included once per instruction set, by a file that defines
// CONVTRACE_CPU_TILE as the name of its function.
//
// The tile is taken in blocks that stay in the first-level cache, each walked four times: counts
// and extremes, floating sums, sketch, hash. Four simple loops keep their accumulators in
// registers; one loop with all of them would not.
#pragma once

#include "cupti/stats/cpu/cpu_chunk_sums.h"
#include "cupti/stats/cpu/cpu_exact_sums.h"
#include "cupti/stats/cpu/cpu_hash.h"
#include "cupti/stats/cpu/cpu_sketch.h"
#include "cupti/stats/cpu/cpu_sums.h"
#include "cupti/stats/cpu/cpu_tally.h"
#include "cupti/stats/cpu/cpu_tile.h"
#include "cupti/stats/cpu/simd.h"
#include "cupti/stats/thread/accumulator.h"
#include "cupti/stats/thread/thread_tile.h"
#include "cupti/stats/tile/unpack.h"

namespace convtrace::stats {
namespace {

static_assert(kBlockBytes % kTallyRunBytes == 0);

template <DType D>
class TileState {
 public:
  TileState(Shift<D> shift, TileExtent tile, uint64_t bytes)
      : shift_(shift), sums_(shift, bytes), sketch_(tile.first) {}

  void add_block(const std::byte* data, uint32_t bytes) {
    if constexpr (kUnpacked<D>) {
      constexpr uint32_t kPartBytes = kBlockBytes / kSpread<D>;
      for (uint32_t at = 0; at < bytes; at += kPartBytes)
        add_unpacked(data + at, bytes - at < kPartBytes ? bytes - at : kPartBytes);
    } else {
      add_elements(data, bytes);
    }
    hash_.add(data, bytes);
  }

  Partial close(uint64_t count) {
    ThreadTotals totals;
    totals.counts = tally_.counts;
    totals.extremes = tally_.extremes();
    sums_.put_into(totals);
    totals.hash = hash_.sum();
    Partial partial;
    close_tile(totals, shift_.parts(), count, D, partial);
    sketch_.close(partial.sketch);
    return partial;
  }

 private:
  using E = Element<D>;
  using Bits = typename E::Bits;

  void add_unpacked(const std::byte* data, uint32_t bytes) {
    alignas(kVectorBytes) uint16_t wide[kBlockBytes / sizeof(uint16_t)];
    for (uint32_t i = 0; i < bytes; ++i)
      wide[i] = static_cast<uint16_t>(unpack_halves<D>(std::to_integer<uint32_t>(data[i])));
    add_elements(reinterpret_cast<const std::byte*>(wide), bytes * kSpread<D>);
  }

  void add_elements(const std::byte* data, uint32_t bytes) {
    const Tally<D> tally = tally_of(data, bytes);
    const TileCounts& counts = tally.counts;
    const bool finite = counts.nan + counts.pos_inf + counts.neg_inf == 0;
    sums_.add_block(data, bytes, finite && in_chunk_range(tally));
    const uint32_t whole = finite ? bytes / kRowBytes * kRowBytes : 0;
    sketch_.add_rows(data, whole / kRowBytes);
    sketch_.add_any(data + whole, bytes - whole);
    tally_.add(tally);
  }

  static Tally<D> tally_of(const std::byte* data, uint32_t bytes) {
    Tally<D> tally;
    const uint32_t whole = bytes / kVectorBytes * kVectorBytes;
    for (uint32_t at = 0; at < whole; at += kTallyRunBytes) {
      const uint32_t left = whole - at;
      VectorTally<D>::add_run(data + at, left < kTallyRunBytes ? left : kTallyRunBytes, tally);
    }
    for (uint32_t at = whole; at < bytes; at += sizeof(Bits)) tally.add(load<Bits>(data + at));
    return tally;
  }

  /// @return whether all elements are 0 or in the range of ChunkRange.
  static bool in_chunk_range(const Tally<D>& tally) {
    if constexpr (ChunkRange<D>::kLimited) {
      const auto holds = [](auto key) {
        return ChunkRange<D>::holds(E::magnitude(E::bits_of_key(key)));
      };
      return tally.min_below == Tally<D>::kNoneBelow ||
             (holds(tally.min_key) && holds(tally.max_key) &&
              ChunkRange<D>::holds(tally.min_below + 1));
    }
    return true;
  }

  Shift<D> shift_;
  Tally<D> tally_;
  TileSums<D> sums_;
  TileSketch<D> sketch_;
  BlockHash hash_;
};

template <DType D>
Shift<D> find_shift(const Layout& layout, TileExtent tile) {
  using Bits = typename Element<D>::Bits;
  if constexpr (!kHasShift<D>) return {};
  Bits leading[kLeadingElements];  // they decide the shift of most tiles
  const uint64_t known = tile.count < kLeadingElements ? tile.count : kLeadingElements;
  gather(layout, tile.first, known, reinterpret_cast<std::byte*>(leading));
  return shift_of<D>(tile.count, [&](uint64_t at) {
    if (at < known) return leading[at];
    Bits bits;
    gather(layout, tile.first + at, 1, reinterpret_cast<std::byte*>(&bits));
    return bits;
  });
}

/// Calls `add(data, bytes)` for consecutive blocks of dense bytes of the tile.
template <typename Add>
CONVTRACE_INLINE void for_each_block(const Layout& layout, const Tiling& tiling, uint32_t tile,
                                     Add add) {
  alignas(kVectorBytes) std::byte gathered[kBlockBytes];
  const uint32_t size = format::element_bytes(layout.dtype);
  const uint64_t begin = tile * tiling.tile_bytes();
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
  TileState<D> state(find_shift<D>(layout, extent), extent, tile_length(tiling, tile));
  for_each_block(layout, tiling, tile,
                 [&](const std::byte* data, uint32_t bytes) { state.add_block(data, bytes); });
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
  case DType::D: return tile_of<DType::D>(layout, tiling, tile);
    CONVTRACE_WALKED_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
    default: return {};
  }
}

}  // namespace convtrace::stats

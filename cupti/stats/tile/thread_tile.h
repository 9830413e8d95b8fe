#pragma once
/// @file thread_tile.h
/// The part of a tile that belongs to one thread: the same loop on a device and in its host replay.

#include <cstdint>

#include "cupti/stats/tile/accumulator.h"

namespace convtrace::stats {

/// One tile of a tensor, in elements.
struct TileExtent {
  uint64_t first = 0;
  uint64_t count = 0;
};

template <DType D>
CONVTRACE_HD TileExtent tile_extent(const Tiling& tiling, uint32_t tile) {
  constexpr uint32_t kSize = sizeof(typename Element<D>::Bits);
  return {tile * tiling.tile_bytes / kSize, tile_length(tiling, tile) / kSize};
}

/// Calls `use_chunk(chunk, row)` for chunks of rows that all threads have whole, and `use_group(group,
/// row, valid)` for each row behind them, rows of the tile ascending: as often in every thread, since
/// a warp computes the hash together. While a chunk is used, the loads of the next one are under way:
/// with one load at a time a GPU would wait for its memory half of the time.
/// @param source has `Chunk load_chunk(uint64_t first_element)` and
/// `Group load(uint64_t first_element, uint32_t valid)`.
template <DType D, typename Source, typename UseChunk, typename UseGroup>
CONVTRACE_HD void for_each_group(const Source& source, TileExtent tile, uint32_t thread,
                                 UseChunk use_chunk, UseGroup use_group) {
  const uint32_t begin = thread * kPerGroup<D>;
  const auto rows = static_cast<uint32_t>(ceil_div(tile.count, kPerRow<D>));
  const auto in_chunks =
      static_cast<uint32_t>(tile.count / kPerRow<D> / kChunkGroups * kChunkGroups);
  const auto first_of = [&](uint32_t row) { return uint64_t{row} * kPerRow<D> + begin; };
  Chunk next = {};
  if (in_chunks > 0) next = source.load_chunk(tile.first + begin);
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
  for (uint32_t row = 0; row < in_chunks; row += kChunkGroups) {
    const Chunk chunk = next;
    if (row + kChunkGroups < in_chunks)
      next = source.load_chunk(tile.first + first_of(row + kChunkGroups));
    use_chunk(chunk, row);
  }
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
  for (uint32_t row = in_chunks; row < rows; ++row) {
    const uint64_t first = first_of(row);
    const uint64_t left = first < tile.count ? tile.count - first : 0;
    const auto valid = left < kPerGroup<D> ? static_cast<uint32_t>(left) : kPerGroup<D>;
    use_group(valid == 0 ? Group{} : source.load(tile.first + first, valid), row, valid);
  }
}

/// @param thread 0..63. @return its totals; rows and elements in ascending order.
template <DType D, typename Sums, typename Source>
CONVTRACE_HD ThreadTotals thread_totals(const Source& source, TileExtent tile, Shift<D> shift,
                                        uint32_t thread) {
  ThreadAccumulator<D, Sums> accumulator(shift, thread);
  for_each_group<D>(
      source, tile, thread,
      [&](const Chunk& chunk, uint32_t row) { accumulator.add_chunk(chunk, row); },
      [&](const Group& group, uint32_t row, uint32_t valid) {
        accumulator.add_group(group, row, valid);
      });
  return accumulator.totals();
}

/// The hash alone: no value is decoded, so any type of the same size will do.
template <DType D, typename Source>
CONVTRACE_HD ThreadTotals thread_hash(const Source& source, TileExtent tile, uint32_t thread) {
  ThreadHash hash(thread);
  for_each_group<D>(
      source, tile, thread,
      [&](const Chunk& chunk, uint32_t row) {
        for (uint32_t i = 0; i < kChunkGroups; ++i) hash.add(chunk.group[i], row + i);
      },
      [&](const Group& group, uint32_t row, uint32_t) { hash.add(group, row); });
  ThreadTotals totals;
  totals.hash = hash.sum();
  return totals;
}

/// @return the unsigned type of the same size.
CONVTRACE_HD constexpr DType bits_dtype(DType dtype) {
  switch (format::element_bytes(dtype)) {
    case 1:
      return DType::kU8;
    case 2:
      return DType::kU16;
    case 4:
      return DType::kU32;
    default:
      return DType::kU64;
  }
}

}  // namespace convtrace::stats

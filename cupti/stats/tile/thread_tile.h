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

/// Calls `use_chunk(chunk, row)` for each whole chunk of a thread and `use_group(group, row,
/// valid)` for each group behind them, rows ascending. While a chunk is used, the loads of the next
/// one are under way: with one load at a time a GPU would wait for its memory half of the time.
/// @param source has `Chunk load_chunk(uint64_t first_element)` and
/// `Group load(uint64_t first_element, uint32_t valid)`.
template <DType D, typename Source, typename UseChunk, typename UseGroup>
CONVTRACE_HD void for_each_group(const Source& source, TileExtent tile, uint32_t thread,
                                 UseChunk use_chunk, UseGroup use_group) {
  const uint64_t first_row = tile.first / kPerRow<D>;
  const uint64_t begin = thread * kPerGroup<D>;
  if (begin >= tile.count) return;
  const auto rows = static_cast<uint32_t>((tile.count - begin - 1) / kPerRow<D> + 1);
  const uint64_t last = tile.count - begin - uint64_t{rows - 1} * kPerRow<D>;
  const uint32_t whole = last >= kPerGroup<D> ? rows : rows - 1;
  const uint32_t in_chunks = whole / kChunkGroups * kChunkGroups;
  const auto first_of = [&](uint32_t row) {
    return tile.first + begin + uint64_t{row} * kPerRow<D>;
  };
  Chunk next = {};
  if (in_chunks > 0) next = source.load_chunk(first_of(0));
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
  for (uint32_t row = 0; row < in_chunks; row += kChunkGroups) {
    const Chunk chunk = next;
    if (row + kChunkGroups < in_chunks) next = source.load_chunk(first_of(row + kChunkGroups));
    use_chunk(chunk, first_row + row);
  }
#if defined(__CUDA_ARCH__)
#pragma unroll 1
#endif
  for (uint32_t row = in_chunks; row < rows; ++row) {
    const uint32_t valid = row < whole ? kPerGroup<D> : static_cast<uint32_t>(last);
    use_group(source.load(first_of(row), valid), first_row + row, valid);
  }
}

/// @param thread 0..63. @return its totals; rows and elements in ascending order.
template <DType D, typename Sums, typename Source>
CONVTRACE_HD ThreadTotals thread_totals(const Source& source, TileExtent tile, Shift<D> shift,
                                        uint32_t thread) {
  ThreadAccumulator<D, Sums> accumulator(shift, thread);
  for_each_group<D>(
      source, tile, thread,
      [&](const Chunk& chunk, uint64_t row) { accumulator.add_chunk(chunk, row); },
      [&](const Group& group, uint64_t row, uint32_t valid) {
        accumulator.add_group(group, row, valid);
      });
  return accumulator.totals();
}

/// The hash alone: no value is decoded, so any type of the same size will do.
template <DType D, typename Source>
CONVTRACE_HD ThreadTotals thread_hash(const Source& source, TileExtent tile, uint32_t thread) {
  ThreadAccumulator<D, WideSums<D>> accumulator({}, thread);
  for_each_group<D>(
      source, tile, thread,
      [&](const Chunk& chunk, uint64_t row) {
        for (uint32_t i = 0; i < kChunkGroups; ++i) accumulator.add_hash(chunk.group[i], row + i);
      },
      [&](const Group& group, uint64_t row, uint32_t) { accumulator.add_hash(group, row); });
  ThreadTotals totals;
  totals.hash = accumulator.hash();
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

#pragma once
/// @file thread_tile.h
/// The part of a tile that belongs to one thread: the same loop on a device and in its host replay.

#include <cstdint>

#include "cupti/stats/thread/accumulator.h"

namespace convtrace::stats {

/// Rows that all threads have whole are taken in chunks.
template <DType D>
CONVTRACE_HD uint32_t rows_in_chunks(TileExtent tile) {
  return static_cast<uint32_t>(tile.count / kPerRow<D> / kChunkGroups * kChunkGroups);
}

/// @return the first chunk of a thread, which needs nothing else of the tile to be known; zeros if the
/// tile has none. @param source  as for_each_chunk() takes it.
template <DType D, typename Source>
CONVTRACE_HD Chunk first_chunk(const Source& source, TileExtent tile, uint32_t thread) {
  Chunk first = {};
  if (rows_in_chunks<D>(tile) > 0) first = source.load_chunk(tile.first + thread * kPerGroup<D>);
  return first;
}

/// Calls `use_chunk(chunk, row)` for chunks of rows that all threads have whole, and
/// `use_rest(chunk, row, rows, left)` for the rows behind them, if there are any: rows of the tile
/// ascending, as often in every thread, since a warp computes the hash together. While a chunk is
/// used, the loads of the next one are under way: with one load at a time a GPU would wait for its
/// memory half of the time.
/// @tparam Turns  of the loop, one behind the other in a device's code: with two, no register is copied
/// from the next chunk to this one.
/// @param source has `Chunk load_chunk(uint64_t first_element)` and
/// `Group load(uint64_t first_element, uint32_t valid)`. @param next  first_chunk().
template <DType D, uint32_t Turns, typename Source, typename UseChunk, typename UseRest>
CONVTRACE_HD void for_each_chunk(const Source& source, TileExtent tile, uint32_t thread, Chunk next,
                                 UseChunk use_chunk, UseRest use_rest) {
  const uint32_t begin = thread * kPerGroup<D>;
  const auto rows = static_cast<uint32_t>(ceil_div(tile.count, kPerRow<D>));
  const uint32_t in_chunks = rows_in_chunks<D>(tile);
  const auto first_of = [&](uint32_t row) { return uint64_t{row} * kPerRow<D> + begin; };
#if defined(__CUDA_ARCH__)
#pragma unroll Turns
#endif
  for (uint32_t row = 0; row < in_chunks; row += kChunkGroups) {
    const Chunk chunk = next;
    if (row + kChunkGroups < in_chunks)
      next = source.load_chunk(tile.first + first_of(row + kChunkGroups));
    use_chunk(chunk, row);
  }
  if (in_chunks == rows) return;
  const auto left_of = [&](uint32_t row) {
    const uint64_t first = first_of(row);
    return first < tile.count ? static_cast<uint32_t>(tile.count - first) : 0;
  };
  Chunk rest = {};
  for (uint32_t i = 0; i < kChunkGroups; ++i) {
    const uint32_t left = left_of(in_chunks + i);
    const uint32_t valid = left < kPerGroup<D> ? left : kPerGroup<D>;
    if (valid != 0) rest.group[i] = source.load(tile.first + first_of(in_chunks + i), valid);
  }
  use_rest(rest, in_chunks, rows - in_chunks, left_of(in_chunks));
}

/// @param thread 0..63. @param first  first_chunk(). @param sketch  ThreadSketch or NoSketch. @return the
/// thread's totals; rows and elements in ascending order.
template <DType D, typename Sums, typename Source, typename Sketch>
CONVTRACE_HD ThreadTotals thread_totals(const Source& source, TileExtent tile, Shift<D> shift,
                                        uint32_t thread, const Chunk& first, Sketch& sketch) {
  ThreadAccumulator<D, Sums, Sketch> accumulator(shift, thread, sketch);
  for_each_chunk<D, 1>(
      source, tile, thread, first,
      [&](const Chunk& chunk, uint32_t row) { accumulator.add_chunk(chunk, row); },
      [&](const Chunk& chunk, uint32_t row, uint32_t rows, uint32_t left) {
        accumulator.add_rest(chunk, row, rows, left);
      });
  return accumulator.totals();
}

/// The hash alone: no value is decoded, so any type of the same size will do. @param first
/// first_chunk().
template <DType D, typename Source>
CONVTRACE_HD uint64_t thread_hash(const Source& source, TileExtent tile, uint32_t thread,
                                  const Chunk& first) {
  ThreadHash hash(thread);
  for_each_chunk<D, 2>(
      source, tile, thread, first, [&](const Chunk& chunk, uint32_t row) { hash.add(chunk, row); },
      [&](const Chunk& chunk, uint32_t row, uint32_t rows, uint32_t) {
        hash.add(chunk, row, rows);
      });
  return hash.sum();
}

/// @return the unsigned type of the same size.
CONVTRACE_HD constexpr DType bits_dtype(DType dtype) {
  switch (format::element_bytes(dtype)) {
    case 1: return DType::kU8;
    case 2: return DType::kU16;
    case 4: return DType::kU32;
    default: return DType::kU64;
  }
}

}  // namespace convtrace::stats

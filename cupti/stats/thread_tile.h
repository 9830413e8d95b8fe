#pragma once
/// @file thread_tile.h
/// The part of a tile that belongs to one thread: the same loop on a device and in its host replay.

#include <cstdint>

#include "cupti/stats/accumulator.h"

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

/// Loads of a thread that are under way at a time: with one, a GPU would wait for its memory half
/// of the time.
inline constexpr uint32_t kLoadsAhead = 4;

/// Calls `use(group, row, valid)` for each group of a thread, rows ascending.
/// @param source has `Group load(uint64_t first_element, uint32_t valid)`.
template <DType D, typename Source, typename Use>
CONVTRACE_HD void for_each_group(const Source& source, TileExtent tile, uint32_t thread, Use use) {
  constexpr uint32_t kPerRow = kThreads * kPerGroup<D>;
  const uint64_t first_row = tile.first / kPerRow;
  const uint64_t begin = thread * kPerGroup<D>;
  if (begin >= tile.count) return;
  const auto rows = static_cast<uint32_t>((tile.count - begin - 1) / kPerRow + 1);
  const uint64_t last_left = tile.count - begin - uint64_t{rows - 1} * kPerRow;
  const bool last_is_whole = last_left >= kPerGroup<D>;
  const uint32_t whole = last_is_whole ? rows : rows - 1;
  const uint64_t first = tile.first + begin;
  const auto load = [&](uint32_t row) {
    return source.load(first + uint64_t{row} * kPerRow, kPerGroup<D>);
  };
  Group ahead[kLoadsAhead] = {};
  for (uint32_t i = 0; i < kLoadsAhead; ++i)
    if (i < whole) ahead[i] = load(i);
  for (uint32_t row = 0; row < whole; ++row) {
    const Group group = ahead[0];
    for (uint32_t i = 1; i < kLoadsAhead; ++i) ahead[i - 1] = ahead[i];
    if (row + kLoadsAhead < whole) ahead[kLoadsAhead - 1] = load(row + kLoadsAhead);
    use(group, first_row + row, kPerGroup<D>);
  }
  if (last_is_whole) return;
  const auto valid = static_cast<uint32_t>(last_left);
  use(source.load(first + uint64_t{rows - 1} * kPerRow, valid), first_row + rows - 1, valid);
}

/// @param thread 0..63. @return its totals; rows and elements in ascending order.
template <DType D, typename Sums, typename Source>
CONVTRACE_HD ThreadTotals thread_totals(const Source& source, TileExtent tile, Shift<D> shift,
                                        uint32_t thread) {
  ThreadAccumulator<D, Sums> accumulator(shift, thread);
  for_each_group<D>(source, tile, thread, [&](const Group& group, uint64_t row, uint32_t valid) {
    accumulator.add_group(group, row, valid);
  });
  return accumulator.totals();
}

/// The hash alone: no value is decoded, so any type of the same size will do.
template <DType D, typename Source>
CONVTRACE_HD ThreadTotals thread_hash(const Source& source, TileExtent tile, uint32_t thread) {
  ThreadAccumulator<D, WideSums<D>> accumulator({}, thread);
  for_each_group<D>(source, tile, thread, [&](const Group& group, uint64_t row, uint32_t) {
    accumulator.add_hash(group, row);
  });
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

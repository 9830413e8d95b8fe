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

/// @param source has `Group load(uint64_t first_element, uint32_t valid)`.
/// @param thread 0..63. @return its totals; rows and elements in ascending order.
template <DType D, typename Source>
CONVTRACE_HD ThreadTotals thread_totals(const Source& source, TileExtent tile, Shift<D> shift,
                                        uint32_t thread) {
  constexpr uint32_t kPerRow = kThreads * kPerGroup<D>;
  ThreadAccumulator<D> accumulator(shift, thread);
  const uint64_t first_row = tile.first / kPerRow;
  for (uint64_t at = thread * kPerGroup<D>; at < tile.count; at += kPerRow) {
    const uint64_t left = tile.count - at;
    const auto valid = static_cast<uint32_t>(left < kPerGroup<D> ? left : kPerGroup<D>);
    accumulator.add_group(source.load(tile.first + at, valid), first_row + at / kPerRow, valid);
  }
  return accumulator.totals();
}

/// The hash alone: no value is decoded, so any type of the same size will do.
template <DType D, typename Source>
CONVTRACE_HD ThreadTotals thread_hash(const Source& source, TileExtent tile, uint32_t thread) {
  constexpr uint32_t kPerRow = kThreads * kPerGroup<D>;
  ThreadAccumulator<D> accumulator({}, thread);
  const uint64_t first_row = tile.first / kPerRow;
  for (uint64_t at = thread * kPerGroup<D>; at < tile.count; at += kPerRow) {
    const uint64_t left = tile.count - at;
    const auto valid = static_cast<uint32_t>(left < kPerGroup<D> ? left : kPerGroup<D>);
    accumulator.add_hash(source.load(tile.first + at, valid), first_row + at / kPerRow);
  }
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

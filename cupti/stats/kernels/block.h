#pragma once
/// @file block.h
/// What each thread of the statistics kernel does, without how threads exchange their results: the
/// kernel does that by shuffles, its replay on the host by loops.
///
/// Threads:  one call a device thread, 64 of them a block, one block a tile.

#include <cstdint>

#include "cupti/stats/kernels/device_layout.h"
#include "cupti/stats/kernels/tensor_source.h"
#include "cupti/stats/thread/thread_tile.h"
#include "cupti/stats/tile/sketch.h"

namespace convtrace::stats {

CONVTRACE_HD BlockInput find_block(const Batch& batch, uint32_t block) {
  uint32_t low = 0;
  uint32_t high = batch.tensor_count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (batch.tensors[middle].first_tile <= block ? low : high) = middle;
  }
  const DeviceTensor& tensor = batch.tensors[low];
  return {batch, tensor, make_tiling(tensor.count * bytes_of(tensor.dtype)),
          block - tensor.first_tile};
}

/// One thread's lane of the sketch of a tile: what the first pass read comes out of a cache.
template <DType D>
CONVTRACE_HD void sum_lane(const BlockInput& in, uint32_t lane, SketchPair& sums) {
  if constexpr (kHasSketch<D>) {
    sums = sketch_lane<D>(TensorSource<D>(in), tile_extent<D>(in.tiling, in.tile), lane);
  }
}

CONVTRACE_HD void write_element(uint64_t address, uint32_t size, uint64_t bits) {
  if (size == 1) *pointer_to<uint8_t>(address) = static_cast<uint8_t>(bits);
  if (size == 2) *pointer_to<uint16_t>(address) = static_cast<uint16_t>(bits);
  if (size == 4) *pointer_to<uint32_t>(address) = static_cast<uint32_t>(bits);
  if (size == 8) *pointer_to<uint64_t>(address) = bits;
}

/// One thread's part of the elements behind the slot.
CONVTRACE_HD void write_leading(const BlockInput& in, uint32_t thread) {
  const uint32_t size = bytes_of(in.tensor.dtype);
  const uint64_t out = in.tensor.slot + sizeof(ResultSlot);
  for (uint32_t i = thread; i < in.tensor.leading; i += kThreads) {
    write_element(out + uint64_t{i} * size, size, element_bits(in, i));
  }
}

/// One thread's part of a copy in logical order. @param in whose slot is where it goes: memory for
/// whole groups, aligned for them. @param first of the groups, @param step to the next.
CONVTRACE_HD void copy_groups(const BlockInput& in, uint64_t first, uint64_t step) {
  const uint32_t per_group = kGroupBytes / bytes_of(in.tensor.dtype);
  for (uint64_t at = first * per_group; at < in.tensor.count; at += step * per_group) {
    const uint64_t left = in.tensor.count - at;
    const auto valid = static_cast<uint32_t>(left < per_group ? left : per_group);
    const Group group = gather_group(in, at, valid);
    auto* out = pointer_to<uint64_t>(in.tensor.slot + at / per_group * kGroupBytes);
    out[0] = group.word[0] | uint64_t{group.word[1]} << 32;
    out[1] = group.word[2] | uint64_t{group.word[3]} << 32;
  }
}

/// One thread's part of the finish: its consecutive tiles merged in order. Empty for threads beyond
/// the last tile.
CONVTRACE_HD Partial merge_own_tiles(const Partial* tiles, const Tiling& tiling, uint32_t thread) {
  Partial merged;
  const uint32_t first = thread * tiling.tiles_per_thread;
  for (uint32_t i = 0; i < tiling.tiles_per_thread && first + i < tiling.tiles; ++i) {
    merged = i == 0 ? tiles[first] : merge(merged, tiles[first + i]);
  }
  return merged;
}

/// One thread's part of what a slot holds beside the total.
CONVTRACE_HD void write_ranges_and_samples(const BlockInput& in, const Partial* tiles,
                                           ResultSlot& slot, uint32_t thread) {
  for (uint32_t range = thread; range < hashed_ranges(in.tiling); range += kThreads) {
    slot.range_hashes[range] =
        range_hash(in.tiling, range, [&](uint32_t tile) { return tiles[tile].hash; });
  }
  if (in.tensor.hash_only != 0) return;
  write_leading(in, thread);
  if (thread < sample_count(in.tensor.count)) {
    slot.samples[thread] = element_bits(in, sample_position(thread, in.tensor.count));
  }
}

}  // namespace convtrace::stats

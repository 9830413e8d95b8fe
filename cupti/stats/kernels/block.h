#pragma once
/// @file block.h
/// Work of each thread of the statistics kernel, without the exchange of results between threads: the
/// kernel exchanges by shuffles, its replay on the host by loops.
///
/// Threads:  one call a device thread, 64 of them a block, one block a tile.

#include <cstdint>

#include "cupti/stats/kernels/device_layout.h"
#include "cupti/stats/kernels/tensor_source.h"
#include "cupti/stats/thread/thread_tile.h"
#include "cupti/stats/tile/sketch.h"

namespace convtrace::stats {

CONVTRACE_HD BlockInput find_block(const Batch& batch, uint32_t block) {
  const DeviceTensor* const tensors = batch.tensors();
  uint32_t low = 0;
  uint32_t high = batch.tensor_count;
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    (tensors[middle].first_tile <= block ? low : high) = middle;
  }
  const DeviceTensor& tensor = tensors[low];
  return {{tensor, batch.dims + tensor.first_dim},
          make_tiling(tensor.count * bytes_of(tensor.dtype)),
          block - tensor.first_tile,
          tensor.first_tile + low};
}

CONVTRACE_HD void write_element(uint64_t address, uint32_t size, uint64_t bits) {
  if (size == 1) *pointer_to<uint8_t>(address) = static_cast<uint8_t>(bits);
  if (size == 2) *pointer_to<uint16_t>(address) = static_cast<uint16_t>(bits);
  if (size == 4) *pointer_to<uint32_t>(address) = static_cast<uint32_t>(bits);
  if (size == 8) *pointer_to<uint64_t>(address) = bits;
}

/// One thread's part of the values behind the slot. @param slot  its address.
CONVTRACE_HD void write_leading(const TensorInput& in, uint64_t slot, uint32_t thread) {
  const uint32_t size = bytes_of(in.tensor.dtype);
  const uint64_t out = slot + sizeof(ResultSlot);
  for (uint32_t i = thread; i < in.tensor.leading; i += kThreads)
    write_element(out + uint64_t{i} * size, size, value_bits(in, i));
}

/// One thread's part of a copy in logical order. @param to  CopyJob::to. @param first of the groups,
/// @param step to the next.
CONVTRACE_HD void copy_groups(const TensorInput& in, uint64_t to, uint64_t first, uint64_t step) {
  const uint32_t per_group = kGroupBytes / bytes_of(in.tensor.dtype);
  for (uint64_t at = first * per_group; at < in.tensor.count; at += step * per_group) {
    const uint64_t left = in.tensor.count - at;
    const auto valid = static_cast<uint32_t>(left < per_group ? left : per_group);
    const Group group = gather_group(in, at, valid);
    auto* out = pointer_to<uint64_t>(to + at / per_group * kGroupBytes);
    out[0] = group.word[0] | uint64_t{group.word[1]} << 32;
    out[1] = group.word[2] | uint64_t{group.word[3]} << 32;
  }
}

/// Keeps sample i if there is one and it lies in the block's tile.
CONVTRACE_HD void keep_sample(const BlockInput& in, TileExtent tile, SampleRecord& record,
                              uint32_t i) {
  const uint64_t count = values_of(in.tensor);
  if (i >= sample_count(count)) return;
  const uint64_t at = sample_position(i, count);
  if (at >= tile.first && at - tile.first < tile.count) record.samples[i] = value_bits(in, at);
}

/// One thread's part of the hashes of ranges. @param tiles  of the tensor. @param step  to the
/// thread's next range.
CONVTRACE_HD void write_range_hashes(const Tiling& tiling, const Partial* tiles, ResultSlot& slot,
                                     uint32_t thread, uint32_t step) {
  const uint64_t factor = tiling.tiles > 1 ? tile_factor(tiling) : 0;
  const auto tile_hash = [&](uint32_t tile) { return tiles[tile].hash; };
  for (uint32_t range = thread; range < hashed_ranges(tiling); range += step)
    slot.range_hashes[range] = range_hash(tiling, range, factor, tile_hash);
}

}  // namespace convtrace::stats

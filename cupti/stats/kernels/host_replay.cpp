#include "cupti/stats/kernels/host_replay.h"

#include <algorithm>
#include <atomic>

#include "cupti/stats/cpu/host_fp.h"
#include "cupti/stats/kernels/block.h"
#include "cupti/stats/tile/merge.h"

namespace convtrace::stats {
namespace {

/// Replaces a device address by one that the host can use.
bool translate_to_host(uint64_t& address, size_t bytes, const Translate& translate) {
  void* host = translate(address, bytes);
  address = reinterpret_cast<uintptr_t>(host);
  return host != nullptr;
}

/// A strided tensor reaches from its lowest element to its highest; `data` is in between.
bool translate_data(DeviceTensor& tensor, const DeviceDim* dims, const Translate& translate) {
  const uint64_t size = bytes_of(tensor.dtype);
  uint64_t below = 0;
  uint64_t above = tensor.rank == 0 ? (tensor.count - 1) * size : 0;
  for (const DeviceDim& dim : std::span(dims, tensor.rank)) {
    const bool backwards = dim.stride < 0;
    const auto stride = static_cast<uint64_t>(backwards ? -dim.stride : dim.stride);
    (backwards ? below : above) += (dim.extent - 1) * stride * size;
  }
  tensor.data -= below;
  const bool done = translate_to_host(tensor.data, below + above + size, translate);
  tensor.data += below;
  return done;
}

/// Slots lie in one piece of memory, so that what is translated of it keeps their distances.
bool translate_batch(ManyBatch& batch, const Translate& translate) {
  const uint64_t slots = batch.head.slots;
  bool done = translate_to_host(batch.head.slots, sizeof(ResultSlot), translate);
  for (DeviceTensor& tensor : std::span(batch.tensors, batch.head.tensor_count)) {
    const uint64_t leading = uint64_t{tensor.leading} * bytes_of(tensor.dtype);
    uint64_t slot = slots + tensor.slot;
    done = done && translate_to_host(slot, sizeof(ResultSlot) + leading, translate) &&
           translate_data(tensor, batch.head.dims + tensor.first_dim, translate);
  }
  return done;
}

template <DType D, typename Sums>
ThreadTotals gather_with(const TensorSource<D>& source, TileExtent tile, Shift<D> shift) {
  NoSketch none;
  ThreadTotals totals[kThreads];
  for (uint32_t t = 0; t < kThreads; ++t)
    totals[t] = thread_totals<D, Sums>(source, tile, shift, t, none);
  combine_threads(totals,
                  [](const ThreadTotals& a, const ThreadTotals& b) { return combine(a, b); });
  return totals[0];
}

template <DType D>
ThreadTotals gather_values(const TensorSource<D>& source, TileExtent tile, Shift<D> shift,
                           Variant variant) {
  if constexpr (kHasNarrowSums<D>) {
    if (variant == Variant::kNarrow) return gather_with<D, NarrowSums>(source, tile, shift);
  }
  if constexpr (kHasShift<D>) {
    if (shift.value != 0) return gather_with<D, SumsOf<D, true>>(source, tile, shift);
  }
  return gather_with<D, SumsOf<D, false>>(source, tile, shift);
}

template <DType D>
void sketch_tile(const TensorSource<D>& source, TileExtent tile, double* buckets) {
  if constexpr (kHasSketch<D>) {
    SketchPair lanes[kThreads];
    for (uint32_t t = 0; t < kThreads; ++t) lanes[t] = sketch_lane<D>(source, tile, t);
    for (uint32_t i = 0; i < kSketchBuckets; ++i)
      buckets[i] = sketch_bucket(lanes, sizeof(typename Element<D>::Bits), i);
  }
}

template <DType D>
Partial hash_of(const BlockInput& in) {
  Partial partial;
  for (uint32_t t = 0; t < kThreads; ++t) {
    const TileExtent tile = tile_extent<D>(in.tiling, in.tile);
    const uint64_t hash = thread_hash<D>(TensorSource<D>(in), tile, t);
    partial.hash = residue_sum(partial.hash, hash);
  }
  return partial;
}

template <DType D>
Partial tile_of(const BlockInput& in, Variant variant) {
  const TensorSource<D> source(in);
  const TileExtent tile = tile_extent<D>(in.tiling, in.tile);
  const auto shift =
      shift_of<D>(tile.count, [&](uint64_t at) { return source.element(tile.first + at); });
  Partial partial;
  close_tile(gather_values<D>(source, tile, shift, variant), shift.parts(), tile.count, D, partial);
  sketch_tile<D>(source, tile, partial.sketch);
  if constexpr (kUnpacked<D>) partial.hash = hash_of<DType::kU8>(in).hash;
  return partial;
}

Partial tile_partial(const BlockInput& in, Variant variant) {
  const auto dtype = static_cast<DType>(in.tensor.dtype);
  if (in.tensor.hash_only != 0) {
    switch (bits_dtype(dtype)) {
#define CONVTRACE_X(D) \
  case DType::D:       \
    return hash_of<DType::D>(in);
      CONVTRACE_BITS_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
      default:
        return {};
    }
  }
  switch (dtype) {
#define CONVTRACE_X(D) \
  case DType::D:       \
    return tile_of<DType::D>(in, variant);
    CONVTRACE_WALKED_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
    default:
      return {};
  }
}

/// @param parts  `count` of them, `step` apart. @return all of them; the first one's place has it, too.
Partial& merge_in_place(Partial* parts, uint32_t count, uint32_t step) {
  Partial merged[kThreads];
  for (uint32_t i = 0; i < count; ++i) merged[i] = parts[i * step];
  return parts[0] = merge_parts(merged, count);
}

/// @return whether it is the last of `count`: then the ticket is zero again.
bool arrives_last(uint32_t& ticket, uint32_t count) {
  if (++ticket != count) return false;
  ticket = 0;
  return true;
}

void run_block(const Batch& batch, uint32_t block) {
  const BlockInput in = find_block(batch, block);
  const Tiling& tiling = in.tiling;
  auto& arena = *pointer_to<Arena>(batch.arena);
  arena.partials[block] = tile_partial(in, static_cast<Variant>(batch.variant));
  const uint32_t group = in.tile / tiling.tiles_per_group;
  const uint32_t first_of_group = in.tensor.first_tile + group * tiling.tiles_per_group;
  if (!arrives_last(arena.group_tickets[first_of_group], tiling.group_size(group))) return;
  const bool values = in.tensor.hash_only == 0;
  if (values) (void)merge_in_place(arena.partials + first_of_group, tiling.group_size(group), 1);
  const auto tensor = static_cast<uint32_t>(&in.tensor - batch.tensors());
  if (!arrives_last(arena.tensor_tickets[tensor], tiling.groups)) return;
  Partial* const tiles = arena.partials + in.tensor.first_tile;
  auto& slot = *pointer_to<ResultSlot>(batch.slots + in.tensor.slot);
  if (values) slot.total = merge_in_place(tiles, tiling.groups, tiling.tiles_per_group);
  for (uint32_t t = 0; t < kThreads; ++t) write_ranges_and_samples(in, tiles, slot, t);
  std::atomic_ref(slot.sequence).store(batch.sequence, std::memory_order_release);
}

}  // namespace

bool replay_stats_kernel(const FewBatch& batch, const Translate& translate,
                         std::span<const uint32_t> blocks) {
  if (batch.head.tensor_count == 0) return true;
  uint64_t arena = batch.head.arena;
  if (!translate_to_host(arena, sizeof(Arena), translate)) return false;
  ManyBatch host;
  host.head = batch.head;
  host.head.arena = arena;
  const DeviceTensor* const tensors = batch.head.tensor_count <= FewBatch::kMaxTensors
                                          ? batch.tensors
                                          : pointer_to<Arena>(arena)->list.tensors;
  std::copy_n(tensors, batch.head.tensor_count, host.tensors);
  if (!translate_batch(host, translate)) return false;
  const DefaultFloatingPoint scope;
  for (const uint32_t block : blocks) run_block(host.head, block);
  return true;
}

bool replay_list_kernel(const ManyBatch& batch, const Translate& translate) {
  if (batch.head.tensor_count == 0) return true;
  uint64_t arena = batch.head.arena;
  if (!translate_to_host(arena, sizeof(Arena), translate)) return false;
  pointer_to<Arena>(arena)->list = batch;
  return true;
}

bool replay_gather_kernel(const CopyJob& job, const Translate& translate) {
  if (job.tensor.count == 0) return true;
  CopyJob host = job;
  const uint64_t bytes = job.tensor.count * bytes_of(job.tensor.dtype);
  if (!translate_to_host(host.to, ceil_div(bytes, kGroupBytes) * kGroupBytes, translate) ||
      !translate_data(host.tensor, host.dims, translate)) {
    return false;
  }
  copy_groups({host.tensor, host.dims}, host.to, 0, 1);
  return true;
}

}  // namespace convtrace::stats

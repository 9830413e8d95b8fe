#include "tests/support/host_replay.h"

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

/// Slots lie in one block of memory, and so do the places of a log: translating the first address of each
/// block keeps the distances.
bool translate_batch(ManyBatch& batch, const Translate& translate) {
  const uint64_t slots = batch.head.slots;
  uint32_t places = 0;
  bool done = translate_to_host(batch.head.slots, sizeof(ResultSlot), translate);
  for (DeviceTensor& tensor : std::span(batch.tensors, batch.head.tensor_count)) {
    const uint64_t bytes = tensor.count * bytes_of(tensor.dtype);
    const uint64_t leading = uint64_t{tensor.leading} * bytes_of(tensor.dtype);
    uint64_t slot = slots + tensor.slot;
    places += log_places(make_tiling(bytes).tiles);
    done = done && translate_to_host(slot, sizeof(ResultSlot) + leading, translate) &&
           translate_data(tensor, batch.head.dims + tensor.first_dim, translate);
  }
  return done && translate_to_host(batch.head.log, places * sizeof(LogPlace), translate);
}

template <DType D, typename Sums>
ThreadTotals gather_with(const TensorSource<D>& source, TileExtent tile, Shift<D> shift) {
  NoSketch none;
  ThreadTotals totals[kThreads];
  for (uint32_t t = 0; t < kThreads; ++t)
    totals[t] =
        thread_totals<D, Sums>(source, tile, shift, t, first_chunk<D>(source, tile, t), none);
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
  const TileExtent tile = tile_extent<D>(in.tiling, in.tile);
  const TensorSource<D> source(in);
  Partial partial;
  for (uint32_t t = 0; t < kThreads; ++t) {
    const uint64_t hash = thread_hash<D>(source, tile, t, first_chunk<D>(source, tile, t));
    partial.hash = residue_sum(partial.hash, hash);
  }
  return partial;
}

template <DType D>
Partial tile_of(const BlockInput& in, Variant variant, SampleRecord& record) {
  const TensorSource<D> source(in);
  const TileExtent tile = tile_extent<D>(in.tiling, in.tile);
  const auto shift =
      shift_of<D>(tile.count, [&](uint64_t at) { return source.element(tile.first + at); });
  Partial partial;
  close_tile(gather_values<D>(source, tile, shift, variant), shift.parts(), tile.count, D, partial);
  sketch_tile<D>(source, tile, partial.sketch);
  if constexpr (kUnpacked<D>) partial.hash = hash_of<DType::kU8>(in).hash;
  for (uint32_t i = 0; i < kWholeCount; ++i) keep_sample(in, tile, record, i);
  return partial;
}

Partial tile_partial(const BlockInput& in, Variant variant, SampleRecord& record) {
  const auto dtype = static_cast<DType>(in.tensor.dtype);
  if (in.tensor.hash_only != 0) {
    switch (bits_dtype(dtype)) {
#define CONVTRACE_X(D) \
  case DType::D: return hash_of<DType::D>(in);
      CONVTRACE_BITS_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
      default: return {};
    }
  }
  switch (dtype) {
#define CONVTRACE_X(D) \
  case DType::D: return tile_of<DType::D>(in, variant, record);
    CONVTRACE_WALKED_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
    default: return {};
  }
}

void run_tile(const Batch& batch, uint32_t block) {
  const BlockInput in = find_block(batch, block);
  auto* const log = pointer_to<LogPlace>(batch.log) + in.place;
  log[log_places(in.tile)] =
      tile_partial(in, static_cast<Variant>(batch.variant), *reinterpret_cast<SampleRecord*>(log));
  for (uint32_t t = 0; in.tile == 0 && t < kThreads; ++t)
    write_leading(in, batch.slots + in.tensor.slot, t);
}

/// @return all of `count` consecutive parts.
Partial merged(const Partial* parts, uint32_t count) {
  Partial copy[kThreads];
  std::copy_n(parts, count, copy);
  return merge_parts(copy, count);
}

/// @param log  of the tensor. @param slot  its own.
void fold_tensor(const FoldJob& job, const LogPlace* log, ResultSlot& slot) {
  const Tiling tiling = make_tiling(job.bytes);
  const Partial* const tiles = log + log_places(0);
  write_range_hashes(tiling, tiles, slot, 0, 1);
  if (job.samples != 0) {
    Partial groups[kThreads];
    for (uint32_t i = 0; i < tiling.groups; ++i)
      groups[i] = merged(tiles + i * tiling.tiles_per_group, tiling.group_size(i));
    slot.total = merged(groups, tiling.groups);
    std::copy_n(reinterpret_cast<const SampleRecord*>(log)->samples, job.samples, slot.samples);
  }
  std::atomic_ref(slot.sequence).store(job.sequence, std::memory_order_release);
}

}  // namespace

bool replay_stats_kernel(const FewBatch& batch, const Translate& translate,
                         std::span<const uint32_t> blocks) {
  if (batch.head.tensor_count == 0) return true;
  ManyBatch host;
  host.head = batch.head;
  const DeviceTensor* tensors = batch.tensors;
  if (batch.head.tensor_count > FewBatch::kMaxTensors) {
    uint64_t list = batch.head.list;
    if (!translate_to_host(list, sizeof(ManyBatch), translate)) return false;
    tensors = pointer_to<ManyBatch>(list)->tensors;
  }
  std::copy_n(tensors, batch.head.tensor_count, host.tensors);
  if (!translate_batch(host, translate)) return false;
  const DefaultFloatingPoint scope;
  for (const uint32_t block : blocks) run_tile(host.head, block);
  return true;
}

bool replay_fold_kernel(const Fold& fold, const Translate& translate,
                        std::span<const uint32_t> blocks) {
  const DefaultFloatingPoint scope;
  for (const uint32_t block : blocks) {
    if (block >= fold.count) continue;
    const FoldJob& job = fold.jobs[block];
    const uint64_t places = log_places(make_tiling(job.bytes).tiles);
    uint64_t log = fold.log + job.place * sizeof(LogPlace), slot = fold.slots + job.slot;
    if (!translate_to_host(log, places * sizeof(LogPlace), translate) ||
        !translate_to_host(slot, sizeof(ResultSlot), translate)) {
      return false;
    }
    fold_tensor(job, pointer_to<LogPlace>(log), *pointer_to<ResultSlot>(slot));
  }
  return true;
}

bool replay_list_kernel(const ManyBatch& batch, const Translate& translate) {
  if (batch.head.tensor_count == 0) return true;
  uint64_t list = batch.head.list;
  if (!translate_to_host(list, sizeof(ManyBatch), translate)) return false;
  *pointer_to<ManyBatch>(list) = batch;
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

#include "cupti/stats/kernels/host_replay.h"

#include <atomic>

#include "cupti/stats/cpu/host_fp.h"
#include "cupti/stats/kernels/block.h"

namespace convtrace::stats {
namespace {

/// Replaces a device address by one that the host can use.
bool translate_to_host(uint64_t& address, size_t bytes, const Translate& translate) {
  void* host = translate(address, bytes);
  address = reinterpret_cast<uintptr_t>(host);
  return host != nullptr;
}

/// A strided tensor reaches from its lowest element to its highest; `data` is in between.
bool translate_data(const Batch& batch, DeviceTensor& tensor, const Translate& translate) {
  const uint64_t size = bytes_of(tensor.dtype);
  uint64_t below = 0;
  uint64_t above = tensor.rank == 0 ? (tensor.count - 1) * size : 0;
  for (uint32_t i = 0; i < tensor.rank; ++i) {
    const DeviceDim& dim = batch.dims[tensor.first_dim + i];
    const bool backwards = dim.stride < 0;
    const auto stride = static_cast<uint64_t>(backwards ? -dim.stride : dim.stride);
    (backwards ? below : above) += (dim.extent - 1) * stride * size;
  }
  tensor.data -= below;
  const bool done = translate_to_host(tensor.data, below + above + size, translate);
  tensor.data += below;
  return done;
}

bool translate_batch(Batch& batch, uint32_t grid, const Translate& translate) {
  bool done = translate_to_host(batch.partials, grid * sizeof(Partial), translate) &&
              translate_to_host(batch.tickets, batch.tensor_count * sizeof(uint32_t), translate);
  for (uint32_t i = 0; done && i < batch.tensor_count; ++i) {
    DeviceTensor& tensor = batch.tensors[i];
    const uint64_t leading = uint64_t{tensor.leading} * bytes_of(tensor.dtype);
    done = translate_to_host(tensor.slot, sizeof(ResultSlot) + leading, translate) &&
           translate_data(batch, tensor, translate);
  }
  return done;
}

template <DType D, typename Sums>
void gather_with(const TensorSource<D>& source, TileExtent tile, Shift<D> shift,
                 ThreadTotals* totals) {
  NoSketch none;
  for (uint32_t t = 0; t < kThreads; ++t)
    totals[t] = thread_totals<D, Sums>(source, tile, shift, t, none);
}

template <DType D>
void gather_values(const BlockInput& in, ThreadTotals* totals, ShiftParts& parts) {
  const TensorSource<D> source(in);
  const TileExtent tile = tile_extent<D>(in.tiling, in.tile);
  const auto shift =
      shift_of<D>(tile.count, [&](uint64_t at) { return source.element(tile.first + at); });
  parts = shift.parts();
  if constexpr (kHasNarrowSums<D>) {
    if (in.batch.variant == static_cast<uint32_t>(Variant::kNarrow))
      return gather_with<D, NarrowSums>(source, tile, shift, totals);
  }
  if constexpr (kHasShift<D>) {
    if (shift.value != 0) return gather_with<D, SumsOf<D, true>>(source, tile, shift, totals);
  }
  gather_with<D, SumsOf<D, false>>(source, tile, shift, totals);
}

template <DType D>
void gather_hash(const BlockInput& in, ThreadTotals* totals) {
  const TileExtent tile = tile_extent<D>(in.tiling, in.tile);
  for (uint32_t t = 0; t < kThreads; ++t) {
    totals[t] = thread_hash<D>(TensorSource<D>(in), tile, t);
  }
}

template <DType D>
void sum_lanes(const BlockInput& in, SketchPair* lanes) {
  for (uint32_t t = 0; t < kThreads; ++t) sum_lane<D>(in, t, lanes[t]);
}

void sketch_tile(const BlockInput& in, double* buckets) {
  SketchPair lanes[kThreads];
  switch (static_cast<DType>(in.tensor.dtype)) {
#define CONVTRACE_X(D)              \
  case DType::D:                    \
    sum_lanes<DType::D>(in, lanes); \
    break;
    CONVTRACE_WALKED_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
    default:
      break;
  }
  for (uint32_t i = 0; i < kSketchBuckets; ++i)
    buckets[i] = sketch_bucket(lanes, bytes_of(in.tensor.dtype), i);
}

Partial tile_partial(const BlockInput& in) {
  const auto dtype = static_cast<DType>(in.tensor.dtype);
  ThreadTotals totals[kThreads];
  ShiftParts shift;
  uint64_t count = 0;
  if (in.tensor.hash_only != 0) {
    switch (bits_dtype(dtype)) {
#define CONVTRACE_X(D)                 \
  case DType::D:                       \
    gather_hash<DType::D>(in, totals); \
    break;
      CONVTRACE_BITS_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
      default:
        break;
    }
  } else {
    count = tile_length(in.tiling, in.tile) / bytes_of(in.tensor.dtype);
    switch (dtype) {
#define CONVTRACE_X(D)                          \
  case DType::D:                                \
    gather_values<DType::D>(in, totals, shift); \
    break;
      CONVTRACE_WALKED_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
      default:
        break;
    }
  }
  combine_threads(totals,
                  [](const ThreadTotals& a, const ThreadTotals& b) { return combine(a, b); });
  Partial partial = close_tile(totals[0], shift, count, dtype);
  if (in.tensor.hash_only == 0) sketch_tile(in, partial.sketch);
  return partial;
}

void finish(const BlockInput& in, const Partial* tiles) {
  auto& slot = *pointer_to<ResultSlot>(in.tensor.slot);
  Partial threads[kThreads];
  for (uint32_t t = 0; t < kThreads; ++t) {
    threads[t] = merge_own_tiles(tiles, in.tiling, t);
    write_ranges_and_samples(in, tiles, slot, t);
  }
  combine_threads(threads, [](const Partial& a, const Partial& b) { return merge(a, b); });
  slot.total = threads[0];
  std::atomic_ref(slot.sequence).store(in.tensor.sequence, std::memory_order_release);
}

void run_block(const Batch& batch, uint32_t block) {
  const BlockInput in = find_block(batch, block);
  auto* partials = pointer_to<Partial>(batch.partials);
  partials[block] = tile_partial(in);
  uint32_t& ticket = pointer_to<uint32_t>(batch.tickets)[&in.tensor - batch.tensors];
  if (++ticket != in.tiling.tiles) return;
  ticket = 0;
  finish(in, partials + in.tensor.first_tile);
}

}  // namespace

bool replay_stats_kernel(const Batch& batch, uint32_t grid, const Translate& translate,
                         std::span<const uint32_t> blocks) {
  if (batch.tensor_count == 0) return true;
  Batch host = batch;
  if (!translate_batch(host, grid, translate)) return false;
  const DefaultFloatingPoint scope;
  for (const uint32_t block : blocks) run_block(host, block);
  return true;
}

bool replay_gather_kernel(const Batch& batch, const Translate& translate) {
  if (batch.tensor_count == 0) return true;
  Batch host = batch;
  DeviceTensor& tensor = host.tensors[0];
  const uint64_t bytes = tensor.count * bytes_of(tensor.dtype);
  if (!translate_to_host(tensor.slot, ceil_div(bytes, kGroupBytes) * kGroupBytes, translate) ||
      !translate_data(host, tensor, translate)) {
    return false;
  }
  copy_groups({host, tensor, {}, 0}, 0, 1);
  return true;
}

}  // namespace convtrace::stats

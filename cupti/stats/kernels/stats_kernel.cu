// Statistics of a batch of tensors in one launch, one block a tile. The block that finishes a
// tensor's last tile merges all of them in tile order and writes the result slot: which block that
// is changes from run to run, what it computes does not.

#include "cupti/stats/kernels/block.h"

namespace convtrace::stats {
namespace {

/// Exchanges a structure of whole words inside a warp.
template <typename T>
__device__ __forceinline__ T shuffle_down(const T& value, uint32_t stride) {
  static_assert(sizeof(T) % sizeof(uint32_t) == 0);
  T result;
  const auto* from = reinterpret_cast<const uint32_t*>(&value);
  auto* to = reinterpret_cast<uint32_t*>(&result);
#pragma unroll
  for (uint32_t i = 0; i < sizeof(T) / sizeof(uint32_t); ++i) {
    to[i] = __shfl_down_sync(0xFFFFFFFF, from[i], stride);
  }
  return result;
}

/// combine_threads of tiling.h. All 64 threads take part; the result is valid in thread 0.
template <typename T, typename Combine>
__device__ __forceinline__ T combine_block(T value, Combine combine) {
  __shared__ alignas(T) unsigned char second_half[sizeof(T)];
  for (uint32_t stride = 16; stride > 0; stride /= 2) {
    const T other = shuffle_down(value, stride);
    value = combine(value, other);
  }
  if (threadIdx.x == 32) *reinterpret_cast<T*>(second_half) = value;
  __syncthreads();
  if (threadIdx.x == 0) value = combine(value, *reinterpret_cast<const T*>(second_half));
  __syncthreads();
  return value;
}

/// First finite element of the tile, for all threads.
template <DType D>
__device__ Shift<D> find_shift(const TensorSource<D>& source, TileExtent tile) {
  __shared__ unsigned long long found;
  const auto first = source.element(tile.first);
  if (Element<D>::finite(first)) return Shift<D>::of(first);  // the same for all threads
  if (threadIdx.x == 0) found = ~0ULL;
  __syncthreads();
  for (uint64_t base = 1; base < tile.count; base += kThreads) {
    const uint64_t at = base + threadIdx.x;
    if (at < tile.count && Element<D>::finite(source.element(tile.first + at))) {
      atomicMin(&found, static_cast<unsigned long long>(at));
    }
    __syncthreads();
    const unsigned long long winner = found;
    __syncthreads();
    if (winner != ~0ULL) return Shift<D>::of(source.element(tile.first + winner));
  }
  return {};
}

/// One thread's totals of a tile. Not inlined: one function a type keeps the kernel's registers at
/// the most demanding type's and its compile time bearable; a call a tile costs nothing.
template <DType D, typename Sums>
__device__ __noinline__ void gather_with(const BlockInput& in, ThreadTotals& totals,
                                         ShiftParts& parts) {
  const TensorSource<D> source(in);
  const TileExtent tile = tile_extent<D>(in.tiling, in.tile);
  const Shift<D> shift = find_shift<D>(source, tile);
  totals = thread_totals<D, Sums>(source, tile, shift, threadIdx.x);
  parts = shift.parts();
}

template <DType D>
__device__ __forceinline__ void gather_values(const BlockInput& in, ThreadTotals& totals,
                                              ShiftParts& parts) {
  if constexpr (kHasNarrowSums<D>) {
    if (in.batch.variant == static_cast<uint32_t>(Variant::kNarrow)) {
      return gather_with<D, NarrowSums<D>>(in, totals, parts);
    }
  }
  gather_with<D, WideSums<D>>(in, totals, parts);
}

template <DType D>
__device__ __noinline__ void gather_hash(const BlockInput& in, ThreadTotals& totals) {
  totals = thread_hash<D>(TensorSource<D>(in), tile_extent<D>(in.tiling, in.tile), threadIdx.x);
}

template <DType D>
__device__ __noinline__ void gather_sketch(const BlockInput& in, SketchPair& sums) {
  sum_lane<D>(in, threadIdx.x, sums);
}

/// @param[out] buckets  of the tile's Partial, written by 16 threads.
__device__ void sketch_tile(const BlockInput& in, double* buckets) {
  __shared__ SketchPair lanes[kThreads];
  SketchPair sums;
  switch (static_cast<DType>(in.tensor.dtype)) {
#define CONVTRACE_X(D)                 \
  case DType::D:                       \
    gather_sketch<DType::D>(in, sums); \
    break;
    CONVTRACE_WALKED_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
    default:
      break;
  }
  lanes[threadIdx.x] = sums;
  __syncthreads();
  if (threadIdx.x < kSketchBuckets)
    buckets[threadIdx.x] = sketch_bucket(lanes, bytes_of(in.tensor.dtype), threadIdx.x);
}

/// @return the tile's result but for the sketch, in thread 0.
__device__ Partial tile_partial(const BlockInput& in) {
  const auto dtype = static_cast<DType>(in.tensor.dtype);
  const auto both = [](const ThreadTotals& a, const ThreadTotals& b) { return combine(a, b); };
  ThreadTotals totals;
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
  return close_tile(combine_block(totals, both), shift, count);
}

/// @return true in all threads of the block that is the last of its tensor.
__device__ bool arrive(const BlockInput& in) {
  __shared__ bool last;
  __syncthreads();  // the sketch is other threads'
  if (threadIdx.x == 0) {
    auto* ticket = pointer_to<unsigned>(in.batch.tickets) + (&in.tensor - in.batch.tensors);
    __threadfence();  // the partial before the ticket
    last = atomicAdd(ticket, 1u) == in.tiling.tiles - 1;
    if (last) *ticket = 0;  // ready for the next launch on this arena
    __threadfence();        // the ticket before the partials of others
  }
  __syncthreads();
  return last;
}

__device__ void finish(const BlockInput& in, const Partial* tiles) {
  auto& slot = *pointer_to<ResultSlot>(in.tensor.slot);
  const Partial own = merge_own_tiles(tiles, in.tiling, threadIdx.x);
  const Partial total =
      combine_block(own, [](const Partial& a, const Partial& b) { return merge(a, b); });
  if (threadIdx.x == 0) slot.total = total;
  write_ranges_and_samples(in, tiles, slot, threadIdx.x);
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    *static_cast<volatile uint64_t*>(&slot.sequence) = in.tensor.sequence;
  }
}

}  // namespace
}  // namespace convtrace::stats

/// Copies the one tensor of the batch in logical order to where its slot would be.
extern "C" __global__ __launch_bounds__(convtrace::stats::kGatherThreads) void convtrace_gather(
    const __grid_constant__ convtrace::stats::Batch batch) {
  using namespace convtrace::stats;
  if (batch.tensor_count == 0) return;  // launched once, so that it is loaded
  const BlockInput in{batch, batch.tensors[0], {}, 0};
  const uint64_t thread = uint64_t{blockIdx.x} * kGatherThreads + threadIdx.x;
  copy_groups(in, thread, uint64_t{gridDim.x} * kGatherThreads);
}

/// Six blocks a multiprocessor: with their four loads a thread 24 KiB are under way on each.
extern "C" __global__ __launch_bounds__(convtrace::stats::kThreads, 6) void convtrace_stats(
    const __grid_constant__ convtrace::stats::Batch batch) {
  using namespace convtrace::stats;
  if (batch.tensor_count == 0) return;  // launched once, so that it is loaded
  const BlockInput in = find_block(batch, blockIdx.x);
  auto* partials = pointer_to<Partial>(batch.partials);
  const Partial partial = tile_partial(in);
  if (threadIdx.x == 0) partials[blockIdx.x] = partial;
  if (in.tensor.hash_only == 0) sketch_tile(in, partials[blockIdx.x].sketch);
  if (arrive(in)) finish(in, partials + in.tensor.first_tile);
}

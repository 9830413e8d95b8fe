// Statistics of a batch of tensors in one launch, one block a tile. The block that finishes a
// tensor's last tile merges all of them in tile order and writes the result slot: which block that
// is changes from run to run, what it computes does not.

#include "cupti/stats/kernels/block.h"
#include "cupti/stats/thread/thread_sketch.h"

namespace convtrace::stats {
namespace {

constexpr uint32_t kAllLanes = 0xFFFFFFFF;

/// Exchanges a structure of whole words inside a warp.
template <typename T>
__device__ __forceinline__ T shuffle_down(const T& value, uint32_t stride) {
  static_assert(sizeof(T) % sizeof(uint32_t) == 0);
  T result;
  const auto* from = reinterpret_cast<const uint32_t*>(&value);
  auto* to = reinterpret_cast<uint32_t*>(&result);
  CONVTRACE_UNROLLED
  for (uint32_t i = 0; i < sizeof(T) / sizeof(uint32_t); ++i) {
    to[i] = __shfl_down_sync(kAllLanes, from[i], stride);
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

/// The tile's shift, for all threads: 0 or its first finite element.
template <DType D>
__device__ Shift<D> find_shift(const TensorSource<D>& source, TileExtent tile) {
  if constexpr (!kHasShift<D>) return {};
  const uint32_t lane = threadIdx.x % kWarp;
  LeadingSigns own;
  if (lane < tile.count) own.add<D>(source.element(tile.first + lane));
  const bool above = __any_sync(kAllLanes, own.above), below = __any_sync(kAllLanes, own.below);
  if (above && below) return {};
  const uint32_t finite = __ballot_sync(kAllLanes, own.any());
  if (finite != 0) return Shift<D>::of(source.element(tile.first + __ffs(finite) - 1));
  __shared__ unsigned long long found;
  if (threadIdx.x == 0) found = ~0ULL;
  __syncthreads();
  for (uint64_t base = kLeadingElements; base < tile.count; base += kThreads) {
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
static_assert(kLeadingElements == kWarp);

/// What one thread has of a tile.
struct ThreadPart {
  ThreadTotals totals;
  ShiftParts shift;
  SketchPair sketch;
  uint32_t lane = 0;  ///< of the sketch
};

struct DeviceWarp {
  __device__ __forceinline__ float shuffle(float value, uint32_t from, uint32_t width) const {
    return __shfl_sync(kAllLanes, value, static_cast<int>(from), static_cast<int>(width));
  }
};

/// One thread's part of a tile. Not inlined: one function a type keeps the kernel's registers at the
/// most demanding type's and its compile time bearable; a call a tile costs nothing.
template <DType D, typename Sums>
__device__ __noinline__ void gather_with(const TensorSource<D>& source, TileExtent tile,
                                         Shift<D> shift, ThreadPart& part) {
  if constexpr (kHasThreadSketch<D>) {
    ThreadSketch<D, DeviceWarp> sketch(tile.first, threadIdx.x);
    part.totals = thread_totals<D, Sums>(source, tile, shift, threadIdx.x, sketch);
    part.sketch = sketch.close();
    part.lane = sketch.lane();
  } else {
    NoSketch none;
    part.totals = thread_totals<D, Sums>(source, tile, shift, threadIdx.x, none);
  }
}

/// The lane of a sketch, of types that have no ThreadSketch: a second pass, out of a cache.
template <DType D>
__device__ __noinline__ void gather_lane(const TensorSource<D>& source, TileExtent tile,
                                         ThreadPart& part) {
  part.sketch = sketch_lane<D>(source, tile, threadIdx.x);
  part.lane = threadIdx.x;
}

template <DType D>
__device__ void gather_values(const BlockInput& in, ThreadPart& part) {
  const TensorSource<D> source(in);
  const TileExtent tile = tile_extent<D>(in.tiling, in.tile);
  const Shift<D> shift = find_shift<D>(source, tile);
  part.shift = shift.parts();
  if constexpr (kHasSketch<D> && !kHasThreadSketch<D>) gather_lane<D>(source, tile, part);
  if constexpr (kHasNarrowSums<D>) {
    if (in.batch.variant == static_cast<uint32_t>(Variant::kNarrow))
      return gather_with<D, NarrowSums>(source, tile, shift, part);
  }
  if constexpr (kHasShift<D>) {
    if (shift.value != 0) return gather_with<D, SumsOf<D, true>>(source, tile, shift, part);
  }
  gather_with<D, SumsOf<D, false>>(source, tile, shift, part);
}

template <DType D>
__device__ __noinline__ void gather_hash(const BlockInput& in, ThreadTotals& totals) {
  totals = thread_hash<D>(TensorSource<D>(in), tile_extent<D>(in.tiling, in.tile), threadIdx.x);
}

/// @param[out] tile  the tile's result. Who waits for all threads finds it whole.
__device__ void make_partial(const BlockInput& in, Partial& tile) {
  __shared__ SketchPair lanes[kThreads];
  const auto dtype = static_cast<DType>(in.tensor.dtype);
  const auto both = [](const ThreadTotals& a, const ThreadTotals& b) { return combine(a, b); };
  ThreadPart part;
  uint64_t count = 0;
  if (in.tensor.hash_only != 0) {
    switch (bits_dtype(dtype)) {
#define CONVTRACE_X(D)                      \
  case DType::D:                            \
    gather_hash<DType::D>(in, part.totals); \
    break;
      CONVTRACE_BITS_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
      default:
        break;
    }
  } else {
    count = tile_length(in.tiling, in.tile) / bytes_of(in.tensor.dtype);
    switch (dtype) {
#define CONVTRACE_X(D)                 \
  case DType::D:                       \
    gather_values<DType::D>(in, part); \
    break;
      CONVTRACE_WALKED_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
      default:
        break;
    }
  }
  lanes[part.lane] = part.sketch;
  const ThreadTotals totals = combine_block(part.totals, both);
  if (threadIdx.x == 0) tile = close_tile(totals, part.shift, count, dtype);
  __syncthreads();  // the buckets come on top
  if (in.tensor.hash_only == 0 && threadIdx.x < kSketchBuckets)
    tile.sketch[threadIdx.x] = sketch_bucket(lanes, bytes_of(in.tensor.dtype), threadIdx.x);
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
  load_shared_keys();
  __syncthreads();
  const BlockInput in = find_block(batch, blockIdx.x);
  auto* partials = pointer_to<Partial>(batch.partials);
  make_partial(in, partials[blockIdx.x]);
  if (arrive(in)) finish(in, partials + in.tensor.first_tile);
}

// Tiles of a batch of tensors, one block a tile, into a log; fold_kernel.cu makes results of it.

#include "cupti/stats/kernels/block.h"
#include "cupti/stats/thread/thread_sketch.h"

namespace convtrace::stats {
namespace {

constexpr uint32_t kAllLanes = 0xFFFFFFFF;

/// The first half of combine_threads(). @return in lane 0 the sum of the warp.
__device__ __forceinline__ double sum_of_warp(double value) {
  CONVTRACE_UNROLLED
  for (uint32_t stride = 16; stride > 0; stride /= 2)
    value = add(value, __shfl_down_sync(kAllLanes, value, stride));
  return value;
}

/// @return the sum of the warp: of parts of 22 bits one instruction adds up those of all lanes.
__device__ __forceinline__ UInt128 sum_of_warp(uint64_t value) {
  constexpr uint32_t kBits = 22, kMask = (1u << kBits) - 1;
  const auto part = [&](uint32_t i) {
    return __reduce_add_sync(kAllLanes, static_cast<uint32_t>(value >> kBits * i) & kMask);
  };
  return UInt128{part(0)} + (UInt128{part(1)} << kBits) + (UInt128{part(2)} << 2 * kBits);
}
__device__ __forceinline__ int64_t sum_of_warp(int64_t value) {
  return static_cast<int64_t>(static_cast<uint64_t>(sum_of_warp(static_cast<uint64_t>(value))));
}

/// @tparam Wide  whether keys have 64 bits.
template <bool Wide>
__device__ __forceinline__ Extremes extremes_of_warp(Extremes own) {
  if constexpr (Wide) {
    CONVTRACE_UNROLLED
    for (uint32_t stride = 16; stride > 0; stride /= 2) {
      own = merge(own, {__shfl_down_sync(kAllLanes, own.min_key, stride),
                        __shfl_down_sync(kAllLanes, own.max_key, stride),
                        __shfl_down_sync(kAllLanes, own.min_below, stride)});
    }
    return own;
  } else {
    const bool none = own.min_key > own.max_key;
    const int32_t least = none ? INT32_MAX : static_cast<int32_t>(own.min_key);
    const int32_t most = none ? INT32_MIN : static_cast<int32_t>(own.max_key);
    const int32_t min_key = __reduce_min_sync(kAllLanes, least);
    const int32_t max_key = __reduce_max_sync(kAllLanes, most);
    const uint32_t below = __reduce_min_sync(kAllLanes, static_cast<uint32_t>(own.min_below));
    if (min_key > max_key) return {};
    return {min_key, max_key, below == UINT32_MAX ? UINT64_MAX : below};
  }
}

__device__ __forceinline__ TileCounts counts_of_warp(const TileCounts& own) {
  const auto sum = [](uint32_t count) { return __reduce_add_sync(kAllLanes, count); };
  return {sum(own.nan),      sum(own.pos_inf),  sum(own.neg_inf),   sum(own.pos_zero),
          sum(own.neg_zero), sum(own.negative), sum(own.subnormal), sum(own.saturated)};
}

/// combine_threads() with combine(), of one warp: valid in lane 0. What is exact is added in another
/// order.
template <DType D, typename Sums>
__device__ __forceinline__ ThreadTotals totals_of_warp(const ThreadTotals& own) {
  using E = Element<D>;
  ThreadTotals all;
  all.counts = counts_of_warp(own.counts);
  all.extremes = extremes_of_warp<E::kWide>(own.extremes);
  all.hash = residue(sum_of_warp(own.hash));
  if constexpr (E::kFloat) {
    all.sum = sum_of_warp(own.sum);
    all.l1 = sum_of_warp(own.l1);
  } else {
    all.int_sum.low = sum_of_warp(own.int_sum.low);
    all.int_l1.low = sum_of_warp(own.int_l1.low);
    if constexpr (E::kWide) {
      all.int_sum.high = sum_of_warp(own.int_sum.high);
      all.int_l1.high = sum_of_warp(own.int_l1.high);
    }
  }
  if constexpr (kHasExactSums<D>) {
    all.int_squares = static_cast<uint64_t>(sum_of_warp(own.int_squares));
  } else {
    all.squares = sum_of_warp(own.squares);
    all.deviations = Sums::kDeviates ? sum_of_warp(own.deviations) : all.sum;
    all.squared_deviations = Sums::kDeviates ? sum_of_warp(own.squared_deviations) : all.squares;
  }
  return all;
}

/// Shared memory through which the threads of a block exchange results. All instances of the kernel's
/// functions share one object.
struct Exchange {
  SketchPair lanes[kThreads];
  ThreadTotals second_warp;
};
__device__ __forceinline__ Exchange& exchange() {
  alignas(Exchange) __shared__ unsigned char memory[sizeof(Exchange)];
  return *reinterpret_cast<Exchange*>(memory);
}

/// The tile's shift, for all threads: 0 or its first finite element. The leading elements are in
/// registers already where the tile has a chunk. All threads take the decision of one: the program may
/// write the tensor meanwhile. Ends behind a barrier. @param first  first_chunk().
template <DType D>
__device__ __forceinline__ Shift<D> find_shift(const TensorSource<D>& source, TileExtent tile,
                                               const Chunk& first) {
  if constexpr (!kHasShift<D>) {
    __syncthreads();
    return {};
  } else {
    using Bits = typename Element<D>::Bits;
    __shared__ unsigned long long place;  // index of the element in the tile
    __shared__ uint64_t element;
    constexpr unsigned long long kNone = ~0ULL, kZero = kNone - 1;
    if (threadIdx.x < kWarp) {
      const uint32_t begin = threadIdx.x * kPerGroup<D>;
      uint32_t valid = begin < kLeadingElements ? kPerGroup<D> : 0;
      Group leading = first.group[0];
      if (rows_in_chunks<D>(tile) == 0) {
        const uint64_t left = begin < tile.count ? tile.count - begin : 0;
        valid = left < valid ? static_cast<uint32_t>(left) : valid;
        if (valid != 0) leading = source.load(tile.first + begin, valid);
      }
      LeadingSigns own;
      uint32_t at = 0;
      Bits bits = 0;
      CONVTRACE_UNROLLED
      for (uint32_t e = kPerGroup<D>; e-- > 0;) {
        const Bits one = element_of<D>(leading, e);
        if (e >= valid || !Element<D>::finite(one)) continue;
        own.template add<D>(one);
        at = begin + e, bits = one;
      }
      const bool above = __any_sync(kAllLanes, own.above), below = __any_sync(kAllLanes, own.below);
      const uint32_t finite = __ballot_sync(kAllLanes, own.any());
      const uint32_t lane = finite == 0 ? 0 : __ffs(static_cast<int>(finite)) - 1;
      if (threadIdx.x == lane) {
        place = above && below ? kZero : finite == 0 ? kNone : at;
        element = bits;
      }
    }
    __syncthreads();
    for (uint64_t base = kLeadingElements; place == kNone && base < tile.count; base += kThreads) {
      __syncthreads();  // all have seen that there is none yet
      const uint64_t at = base + threadIdx.x;
      const Bits bits = at < tile.count ? source.element(tile.first + at) : 0;
      const bool finite = at < tile.count && Element<D>::finite(bits);
      if (finite) atomicMin(&place, static_cast<unsigned long long>(at));
      __syncthreads();
      if (finite && place == at) element = bits;
      __syncthreads();
    }
    return place >= kZero ? Shift<D>{} : Shift<D>::of(static_cast<Bits>(element));
  }
}

struct DeviceWarp {
  __device__ __forceinline__ float shuffle(float value, uint32_t from, uint32_t width) const {
    return __shfl_sync(kAllLanes, value, static_cast<int>(from), static_cast<int>(width));
  }
};

/// @return the totals of the warp, in its lane 0. The sums for the sketch are left in exchange().
template <DType D, typename Sums>
__device__ __forceinline__ ThreadTotals sum_tile(const TensorSource<D>& source, TileExtent tile,
                                                 Shift<D> shift, const Chunk& first) {
  ThreadTotals totals;
  if constexpr (kHasThreadSketch<D>) {
    ThreadSketch<D, DeviceWarp> sketch(tile.first, threadIdx.x);
    totals = thread_totals<D, Sums>(source, tile, shift, threadIdx.x, first, sketch);
    const SketchPair sums = sketch.close();
    exchange().lanes[sketch.lane()] = sums;
  } else {
    NoSketch none;
    totals = thread_totals<D, Sums>(source, tile, shift, threadIdx.x, first, none);
  }
  return totals_of_warp<D, Sums>(totals);
}

template <DType D, bool Narrow>
__device__ __forceinline__ ThreadTotals sum_tile_as(const TensorSource<D>& source, TileExtent tile,
                                                    Shift<D> shift, const Chunk& first) {
  if constexpr (Narrow) {
    return sum_tile<D, NarrowSums>(source, tile, shift, first);
  } else {
    if constexpr (kHasShift<D>) {
      if (shift.value != 0) return sum_tile<D, SumsOf<D, true>>(source, tile, shift, first);
    }
    return sum_tile<D, SumsOf<D, false>>(source, tile, shift, first);
  }
}

/// The lane of a sketch, of types that have no ThreadSketch: a pass of its own.
template <DType D>
__device__ __noinline__ void gather_lane(const TensorInput& in, TileExtent tile) {
  exchange().lanes[threadIdx.x] = sketch_lane<D>(TensorSource<D>(in), tile, threadIdx.x);
}

/// A tile by its block's threads. Not inlined: one function a type keeps the kernel's registers at
/// the most demanding type's and its compile time bearable; a call a tile costs nothing. The first
/// chunk, the hash's keys and the shift are waited for together.
/// @tparam Narrow  with NarrowSums.
template <DType D, bool Narrow>
__device__ __noinline__ void gather_with(const BlockInput& in, Partial& partial,
                                         SampleRecord& record) {
  const TensorSource<D> source(in);  // in registers
  const TileExtent tile = tile_extent<D>(in.tiling, in.tile);
  const Chunk first = first_chunk<D>(source, tile, threadIdx.x);
  load_shared_keys();
  const Shift<D> shift = find_shift<D>(source, tile, first);
  const ThreadTotals totals = sum_tile_as<D, Narrow>(source, tile, shift, first);
  if (threadIdx.x == kWarp) exchange().second_warp = totals;
  __syncthreads();
  if (threadIdx.x >= kWarp) keep_sample(in, tile, record, threadIdx.x - kWarp);
  if (threadIdx.x < kSketchBuckets) {
    double bucket = 0;
    if constexpr (kHasSketch<D>)
      bucket = sketch_bucket(exchange().lanes, sizeof(typename Element<D>::Bits), threadIdx.x);
    partial.sketch[threadIdx.x] = bucket;
  }
  if (threadIdx.x == 0)
    close_tile(combine(totals, exchange().second_warp), shift.parts(), tile.count, D, partial);
}

template <DType D>
__device__ __noinline__ void gather_hash(const BlockInput& in, Partial& partial) {
  const TensorSource<D> source(in);
  const TileExtent tile = tile_extent<D>(in.tiling, in.tile);
  const Chunk first = first_chunk<D>(source, tile, threadIdx.x);
  load_shared_keys();
  __syncthreads();
  uint64_t hash = thread_hash<D>(source, tile, threadIdx.x, first);
  hash = residue(sum_of_warp(hash));
  if (threadIdx.x == kWarp) exchange().second_warp.hash = hash;
  __syncthreads();
  if (threadIdx.x == 0) partial.hash = residue_sum(hash, exchange().second_warp.hash);
}

/// @param[out] partial, record  of the block's tile, written by several threads.
template <DType D>
__device__ void gather_tile(const BlockInput& in, uint32_t variant, Partial& partial,
                            SampleRecord& record) {
  if constexpr (kHasSketch<D> && !kHasThreadSketch<D>)
    gather_lane<D>(in, tile_extent<D>(in.tiling, in.tile));
  if constexpr (kHasNarrowSums<D>) {
    if (variant == static_cast<uint32_t>(Variant::kNarrow))
      return gather_with<D, true>(in, partial, record);
  }
  gather_with<D, false>(in, partial, record);
  if constexpr (kUnpacked<D>) {
    __syncthreads();  // the shared memory is used again
    gather_hash<DType::kU8>(in, partial);
  }
}

/// @param[out] partial, record  of the block's tile, written by several threads.
__device__ void make_partial(const BlockInput& in, uint32_t variant, Partial& partial,
                             SampleRecord& record) {
  const auto dtype = static_cast<DType>(in.tensor.dtype);
  if (in.tensor.hash_only != 0) {
    switch (bits_dtype(dtype)) {
#define CONVTRACE_X(D) \
  case DType::D: return gather_hash<DType::D>(in, partial);
      CONVTRACE_BITS_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
      default: return;
    }
  }
  switch (dtype) {
#define CONVTRACE_X(D) \
  case DType::D: return gather_tile<DType::D>(in, variant, partial, record);
    CONVTRACE_WALKED_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
    default: return;
  }
}

__device__ __forceinline__ void run_tile(const Batch& batch) {
  const BlockInput in = find_block(batch, blockIdx.x);
  auto* const log = pointer_to<LogPlace>(batch.log) + in.place;
  make_partial(in, batch.variant, log[log_places(in.tile)], *reinterpret_cast<SampleRecord*>(log));
  if (in.tile == 0) write_leading(in, batch.slots + in.tensor.slot, threadIdx.x);
}

constexpr uint32_t kBlocks =
    8;  ///< a multiprocessor: with their loads 32 KiB are under way on each

}  // namespace
}  // namespace convtrace::stats

/// Copies a tensor in logical order.
extern "C" __global__ __launch_bounds__(convtrace::stats::kGatherThreads) void convtrace_gather(
    const __grid_constant__ convtrace::stats::CopyJob job) {
  using namespace convtrace::stats;
  if (job.tensor.count == 0) return;  // launched once, so that it is loaded
  const uint64_t thread = uint64_t{blockIdx.x} * kGatherThreads + threadIdx.x;
  copy_groups({job.tensor, job.dims}, job.to, thread, uint64_t{gridDim.x} * kGatherThreads);
}

extern "C" __global__
__launch_bounds__(convtrace::stats::kThreads, convtrace::stats::kBlocks) void convtrace_stats(
    const __grid_constant__ convtrace::stats::FewBatch batch) {
  if (batch.head.tensor_count == 0) return;  // launched once, so that it is loaded
  using namespace convtrace::stats;
  if (batch.head.tensor_count <= FewBatch::kMaxTensors)
    run_tile(batch.head);  // one address of either would cost each load two instructions on sm_90
  else
    run_tile(pointer_to<const ManyBatch>(batch.head.list)->head);
}

/// Puts a list where the statistics kernel looks for it. No other list may be put there before that is
/// launched.
extern "C" __global__ __launch_bounds__(convtrace::stats::kListThreads) void convtrace_list(
    const __grid_constant__ convtrace::stats::ManyBatch batch) {
  using namespace convtrace::stats;
  if (batch.head.tensor_count == 0) return;
  const auto* from = reinterpret_cast<const uint64_t*>(&batch);
  auto* to = pointer_to<uint64_t>(batch.head.list);
  for (uint32_t i = threadIdx.x; i < sizeof(ManyBatch) / sizeof(uint64_t); i += kListThreads)
    to[i] = from[i];
}

#include "cupti/stats/kernels/fold_kernel.cu"

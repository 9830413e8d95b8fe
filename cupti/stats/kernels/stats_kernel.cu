// Statistics of a batch of tensors, one block a tile. The last block of a group of tiles merges the
// group, the last group of a tensor merges the groups and writes the result slot. Which block is
// the last changes from run to run; what it computes does not.

#include "cupti/stats/kernels/block.h"
#include "cupti/stats/thread/thread_sketch.h"
#include "cupti/stats/tile/merge.h"

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

/// What threads of a block exchange; in one place, which functions of all types share.
struct Exchange {
  SketchPair lanes[kThreads];
  ThreadTotals second_warp;
  double sums[kThreads / kWarp];
};
__device__ __forceinline__ Exchange& exchange() {
  alignas(Exchange) __shared__ unsigned char memory[sizeof(Exchange)];
  return *reinterpret_cast<Exchange*>(memory);
}

/// The tile's shift, for all threads: 0 or its first finite element. Each element is read once, and
/// all threads take the decision of one: the program may write the tensor meanwhile.
template <DType D>
__device__ Shift<D> find_shift(const TensorSource<D>& source, TileExtent tile) {
  if constexpr (!kHasShift<D>) {
    return {};
  } else {
    using Bits = typename Element<D>::Bits;
    __shared__ unsigned long long place;  // of the element in the tile
    __shared__ uint64_t element;
    constexpr unsigned long long kNone = ~0ULL, kZero = kNone - 1;
    if (threadIdx.x < kWarp) {
      LeadingSigns own;
      Bits bits = 0;
      if (threadIdx.x < tile.count) {
        bits = source.element(tile.first + threadIdx.x);
        own.add<D>(bits);
      }
      const bool above = __any_sync(kAllLanes, own.above), below = __any_sync(kAllLanes, own.below);
      const uint32_t finite = __ballot_sync(kAllLanes, own.any());
      const uint32_t first = finite == 0 ? 0 : __ffs(static_cast<int>(finite)) - 1;
      if (threadIdx.x == first) {
        place = above && below ? kZero : finite == 0 ? kNone : first;
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
static_assert(kLeadingElements == kWarp);

struct DeviceWarp {
  __device__ __forceinline__ float shuffle(float value, uint32_t from, uint32_t width) const {
    return __shfl_sync(kAllLanes, value, static_cast<int>(from), static_cast<int>(width));
  }
};

/// A tile by its block's threads. Not inlined: one function a type keeps the kernel's registers at
/// the most demanding type's and its compile time bearable; a call a tile costs nothing.
/// @param[out] partial  all but the sketch.
template <DType D, typename Sums>
__device__ __noinline__ void gather_with(const TensorInput& in, TileExtent tile, Shift<D> shift,
                                         Partial& partial) {
  const TensorSource<D> source(in);  // in registers
  ThreadTotals totals;
  if constexpr (kHasThreadSketch<D>) {
    ThreadSketch<D, DeviceWarp> sketch(tile.first, threadIdx.x);
    totals = thread_totals<D, Sums>(source, tile, shift, threadIdx.x, sketch);
    const SketchPair sums = sketch.close();
    exchange().lanes[sketch.lane()] = sums;
  } else {
    NoSketch none;
    totals = thread_totals<D, Sums>(source, tile, shift, threadIdx.x, none);
  }
  totals = totals_of_warp<D, Sums>(totals);
  if (threadIdx.x == kWarp) exchange().second_warp = totals;
  __syncthreads();
  if (threadIdx.x != 0) return;
  totals = combine(totals, exchange().second_warp);
  close_tile(totals, shift.parts(), tile.count, D, partial);
}

/// The lane of a sketch, of types that have no ThreadSketch: a second pass, out of a cache.
template <DType D>
__device__ __noinline__ void gather_lane(const TensorInput& in, TileExtent tile) {
  exchange().lanes[threadIdx.x] = sketch_lane<D>(TensorSource<D>(in), tile, threadIdx.x);
}

template <DType D>
__device__ void gather_sums(const TensorInput& in, TileExtent tile, uint32_t variant,
                            Partial& partial) {
  const TensorSource<D> source(in);
#if defined(__CUDA_ARCH__)
  if constexpr (kHasShift<D>) source.prefetch_chunk(tile, threadIdx.x);
#endif
  const Shift<D> shift = find_shift<D>(source, tile);
  if constexpr (kHasNarrowSums<D>) {
    if (variant == static_cast<uint32_t>(Variant::kNarrow))
      return gather_with<D, NarrowSums>(in, tile, shift, partial);
  }
  if constexpr (kHasShift<D>) {
    if (shift.value != 0) return gather_with<D, SumsOf<D, true>>(in, tile, shift, partial);
  }
  gather_with<D, SumsOf<D, false>>(in, tile, shift, partial);
}

template <DType D>
__device__ void gather_values(const BlockInput& in, uint32_t variant, Partial& partial) {
  const TileExtent tile = tile_extent<D>(in.tiling, in.tile);
  if constexpr (kHasSketch<D> && !kHasThreadSketch<D>) gather_lane<D>(in, tile);
  gather_sums<D>(in, tile, variant, partial);
  if (threadIdx.x >= kSketchBuckets) return;
  double bucket = 0;
  if constexpr (kHasSketch<D>)
    bucket = sketch_bucket(exchange().lanes, sizeof(typename Element<D>::Bits), threadIdx.x);
  partial.sketch[threadIdx.x] = bucket;
}

template <DType D>
__device__ __noinline__ void gather_hash(const BlockInput& in, Partial& partial) {
  const TileExtent tile = tile_extent<D>(in.tiling, in.tile);
  uint64_t hash = thread_hash<D>(TensorSource<D>(in), tile, threadIdx.x);
  hash = residue(sum_of_warp(hash));
  if (threadIdx.x == kWarp) exchange().second_warp.hash = hash;
  __syncthreads();
  if (threadIdx.x == 0) partial.hash = residue_sum(hash, exchange().second_warp.hash);
}

/// @param[out] partial  of the block's tile, written by several threads.
template <DType D>
__device__ void gather_tile(const BlockInput& in, uint32_t variant, Partial& partial) {
  gather_values<D>(in, variant, partial);
  if constexpr (kUnpacked<D>) {
    __syncthreads();  // what threads exchange is used again
    gather_hash<DType::kU8>(in, partial);
  }
}

/// @param[out] partial  of the block's tile, written by several threads.
__device__ void make_partial(const BlockInput& in, uint32_t variant, Partial& partial) {
  const auto dtype = static_cast<DType>(in.tensor.dtype);
  if (in.tensor.hash_only != 0) {
    switch (bits_dtype(dtype)) {
#define CONVTRACE_X(D) \
  case DType::D:       \
    return gather_hash<DType::D>(in, partial);
      CONVTRACE_BITS_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
      default:
        return;
    }
  }
  switch (dtype) {
#define CONVTRACE_X(D) \
  case DType::D:       \
    return gather_tile<DType::D>(in, variant, partial);
    CONVTRACE_WALKED_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
    default:
      return;
  }
}

/// @param ticket  zero between launches. @return true in all threads of the last of `count` blocks,
/// which sees what all threads of the others have written.
__device__ bool arrives_last(uint32_t& ticket, uint32_t count) {
  __shared__ bool last;
  __syncthreads();
  if (count == 1) return true;
  if (threadIdx.x == 0) {
    __threadfence();  // what was written before the ticket
    last = atomicAdd(&ticket, 1u) == count - 1;
    if (last) ticket = 0;  // ready for the next launch on this arena
    __threadfence();       // the ticket before what others have written
  }
  __syncthreads();
  return last;
}

/// combine_threads() of sums. @return in all threads.
__device__ __noinline__ double sum_of_block(double value) {
  double* const sums = exchange().sums;
  value = sum_of_warp(value);
  __syncthreads();  // who still reads the sums of the last call
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  return add(sums[0], sums[1]);
}

/// combine_threads() of f64, by one thread alone. @param words  the first part's; another part's is
/// `step` words further on. @return the sum of `count` parts.
__device__ __forceinline__ double tree_of_parts(const uint64_t* words, uint32_t count,
                                                uint32_t step) {
  const auto at = [&](uint32_t i) {
    return i < count ? __builtin_bit_cast(double, words[i * step]) : 0.0;
  };
  const auto half = [&](uint32_t first) {
    double of_four[4];
    CONVTRACE_UNROLLED
    for (uint32_t i = 0; i < 4; ++i) {
      double pair[4];
      CONVTRACE_UNROLLED
      for (uint32_t k = 0; k < 4; ++k) {
        const uint32_t place = first + i + 4 * k;
        pair[k] = add(at(place), at(place + 16));
      }
      of_four[i] = add(add(pair[0], pair[2]), add(pair[1], pair[3]));
    }
    return add(add(of_four[0], of_four[2]), add(of_four[1], of_four[3]));
  };
  double sum = 0;
  CONVTRACE_ROLLED
  for (uint32_t first = 0; first < count; first += kWarp) {
    const double own = half(first);
    sum = first == 0 ? own : add(sum, own);
  }
  return sum;
}

constexpr uint32_t word_of(size_t offset) {
  return static_cast<uint32_t>(offset / sizeof(uint64_t));
}

/// What a thread of the second warp merges: a word of integers.
struct WholeWord {
  uint32_t word;
  uint64_t value = 0;
  uint32_t carries = 0;  ///< how often a sum has overflowed

  __device__ __forceinline__ void add(uint64_t next) {
    constexpr uint32_t kMinKey = word_of(offsetof(Partial, extremes) + offsetof(Extremes, min_key));
    constexpr uint32_t kMaxKey = word_of(offsetof(Partial, extremes) + offsetof(Extremes, max_key));
    constexpr uint32_t kMinBelow =
        word_of(offsetof(Partial, extremes) + offsetof(Extremes, min_below));
    const bool less = static_cast<int64_t>(next) < static_cast<int64_t>(value);
    const uint64_t sum = value + next;
    const bool takes = word == kMinKey ? less : word == kMaxKey ? !less : next < value;
    if (word == kMinKey || word == kMaxKey || word == kMinBelow) {
      value = takes ? next : value;
    } else {
      carries += sum < value ? 1 : 0;
      value = sum;
    }
  }
};

/// Merges words of integers: counts, extremes, and the two sums of 128 bits. All of the second warp.
/// @param thread  of the warp.
__device__ __forceinline__ WholeWord merge_whole_words(const uint64_t* words, uint32_t count,
                                                       uint32_t step, uint32_t thread) {
  constexpr uint32_t kInFront = word_of(offsetof(Partial, moments));
  constexpr uint32_t kSums = word_of(offsetof(Partial, int_sum)), kSumWords = 4;
  static_assert(offsetof(Partial, int_l1) == offsetof(Partial, int_sum) + sizeof(Partial::int_sum));
  WholeWord own{thread < kInFront ? thread : kSums + thread - kInFront};
  if (thread < kInFront + kSumWords) {
    own.value = words[own.word];
#if defined(__CUDA_ARCH__)
#pragma unroll 8
#endif
    for (uint32_t i = 1; i < count; ++i) own.add(words[i * step + own.word]);
  } else {
    own.word = UINT32_MAX;
  }
  const uint32_t below = __shfl_sync(kAllLanes, own.carries, (thread + kWarp - 1) % kWarp);
  if (own.word == kSums + 1 || own.word == kSums + 3) own.value += below;
  return own;
}

/// merge_parts(): a thread takes one word of all parts, so that neighbours load neighbouring words, and
/// the moments of one part. @param parts  `count` of them, `step` apart; the first one's place gets all
/// of them. @return for all threads.
__device__ __noinline__ void merge_in_place(Partial* parts, uint32_t count, uint32_t step) {
  if (count == 1) return;
  constexpr uint32_t kFloats = word_of(offsetof(Partial, sum)), kFloatWords = 3;
  constexpr uint32_t kSketch = word_of(offsetof(Partial, sketch));
  static_assert(kFloatWords + kSketchBuckets <= kWarp);
  // Every word of a Partial is merged: counts and extremes, moments, these, two sums of 128 bits, the
  // hash, which stays, and the sketch.
  static_assert(word_of(sizeof(Counts) + sizeof(Extremes)) == word_of(offsetof(Partial, moments)) &&
                kFloats == word_of(offsetof(Partial, moments) + sizeof(Moments)) &&
                word_of(offsetof(Partial, int_sum)) == kFloats + kFloatWords &&
                word_of(offsetof(Partial, hash)) == kFloats + kFloatWords + 4 &&
                kSketch == kFloats + kFloatWords + 5 &&
                word_of(sizeof(Partial)) == kSketch + kSketchBuckets);
  Moments moments;
  if (threadIdx.x < count) moments = parts[threadIdx.x * step].moments;
  const auto part = [&](uint32_t i) -> const Partial& { return parts[i * step]; };
  CommonMean mean(part(first_with_values(count, part)).moments);
  auto* const words = reinterpret_cast<uint64_t*>(parts);
  const uint32_t step_words = step * word_of(sizeof(Partial));
  WholeWord own{UINT32_MAX};
  if (threadIdx.x >= kWarp) {
    own = merge_whole_words(words, count, step_words, threadIdx.x - kWarp);
  } else if (threadIdx.x < kFloatWords + kSketchBuckets) {
    own.word =
        threadIdx.x < kFloatWords ? kFloats + threadIdx.x : kSketch + threadIdx.x - kFloatWords;
    own.value = __builtin_bit_cast(uint64_t, tree_of_parts(words + own.word, count, step_words));
  }
  const double n = sum_of_block(moments.n);  // after its barrier no thread reads words any more
  mean.set(sum_of_block(mean.share(moments)), n);
  const double m2 = sum_of_block(mean.m2(moments));
  if (own.word != UINT32_MAX) words[own.word] = own.value;
  if (threadIdx.x == 0) parts[0].moments = mean.moments(n, m2);
  __syncthreads();
}

/// @param tiles  of the tensor; the first one's place has the total.
__device__ void write_slot(const BlockInput& in, const Partial* tiles, ResultSlot& slot,
                           uint64_t sequence) {
  constexpr uint32_t kWords = sizeof(Partial) / sizeof(uint64_t);
  static_assert(kWords * sizeof(uint64_t) == sizeof(Partial) && kWords <= kThreads);
  if (in.tensor.hash_only == 0 && threadIdx.x < kWords)
    reinterpret_cast<uint64_t*>(&slot.total)[threadIdx.x] =
        reinterpret_cast<const uint64_t*>(tiles)[threadIdx.x];
  write_ranges_and_samples(in, tiles, slot, threadIdx.x);
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  *static_cast<volatile uint64_t*>(&slot.sequence) = sequence;
}

__device__ __forceinline__ void run_block(const Batch& batch) {
  load_shared_keys();
  __syncthreads();
  const BlockInput in = find_block(batch, blockIdx.x);
  const Tiling& tiling = in.tiling;
  auto& arena = *pointer_to<Arena>(batch.arena);
  make_partial(in, batch.variant, arena.partials[blockIdx.x]);
  const bool values = in.tensor.hash_only == 0;
  const uint32_t group = in.tile / tiling.tiles_per_group;
  const uint32_t of_group = tiling.group_size(group);
  const uint32_t first = in.tensor.first_tile + group * tiling.tiles_per_group;
  if (!arrives_last(arena.group_tickets[first], of_group)) return;
  if (values) merge_in_place(arena.partials + first, of_group, 1);
  const auto tensor = static_cast<uint32_t>(&in.tensor - batch.tensors());
  if (!arrives_last(arena.tensor_tickets[tensor], tiling.groups)) return;
  Partial* const tiles = arena.partials + in.tensor.first_tile;
  if (values) merge_in_place(tiles, tiling.groups, tiling.tiles_per_group);
  write_slot(in, tiles, *pointer_to<ResultSlot>(batch.slots + in.tensor.slot), batch.sequence);
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
  convtrace::stats::run_block(convtrace::stats::list_of(batch.head));
}

/// Puts a list into its arena, for the statistics kernel. No other list may be put there before that
/// is launched.
extern "C" __global__ __launch_bounds__(convtrace::stats::kListThreads) void convtrace_list(
    const __grid_constant__ convtrace::stats::ManyBatch batch) {
  using namespace convtrace::stats;
  if (batch.head.tensor_count == 0) return;
  const auto* from = reinterpret_cast<const uint64_t*>(&batch);
  auto* to = reinterpret_cast<uint64_t*>(&pointer_to<Arena>(batch.head.arena)->list);
  for (uint32_t i = threadIdx.x; i < sizeof(ManyBatch) / sizeof(uint64_t); i += kListThreads)
    to[i] = from[i];
}

// Combines the tiles that the statistics kernel has left in a log into results, one block a tensor: warps
// merge tiles into groups, the block merges groups. stats_kernel.cu includes it.

#include "cupti/stats/kernels/block.h"
#include "cupti/stats/tile/merge.h"

namespace convtrace::stats {
namespace {

constexpr uint32_t word_of(size_t offset) {
  return static_cast<uint32_t>(offset / sizeof(uint64_t));
}

// Every word of a Partial is merged: counts and extremes, moments, three floats, two sums of 128 bits,
// the hash, which stays, and the sketch.
constexpr uint32_t kWords = word_of(sizeof(Partial));
constexpr uint32_t kExtremes = word_of(offsetof(Partial, extremes));
constexpr uint32_t kMinKey = kExtremes + word_of(offsetof(Extremes, min_key));
constexpr uint32_t kMaxKey = kExtremes + word_of(offsetof(Extremes, max_key));
constexpr uint32_t kMinBelow = kExtremes + word_of(offsetof(Extremes, min_below));
constexpr uint32_t kMoments = word_of(offsetof(Partial, moments));
constexpr uint32_t kFloats = word_of(offsetof(Partial, sum));
constexpr uint32_t kInts = word_of(offsetof(Partial, int_sum));
constexpr uint32_t kHashWord = word_of(offsetof(Partial, hash));
constexpr uint32_t kSketch = word_of(offsetof(Partial, sketch));
static_assert(word_of(sizeof(Counts) + sizeof(Extremes)) == kMoments &&
              kFloats == kMoments + word_of(sizeof(Moments)) && kInts == kFloats + 3 &&
              kHashWord == kInts + 4 && kSketch == kHashWord + 1 &&
              kWords == kSketch + kSketchBuckets);

/// combine_threads() of f64, by one thread alone. @param words  the first part's; another part's is
/// kWords further on. @return the sum of `count` parts.
__device__ __forceinline__ double tree_of_parts(const uint64_t* words, uint32_t count) {
  const auto at = [&](uint32_t i) {
    return i < count ? __builtin_bit_cast(double, words[i * kWords]) : 0.0;
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

/// One integer word of all parts: sums, or an extreme. @param[out] carries  of a sum.
__device__ __forceinline__ uint64_t merge_whole(const uint64_t* words, uint32_t count,
                                                uint32_t word, uint32_t& carries) {
  uint64_t value = words[word];
#if defined(__CUDA_ARCH__)
#pragma unroll 16
#endif
  for (uint32_t i = 1; i < count; ++i) {
    const uint64_t next = words[i * kWords + word];
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
  return value;
}

/// combine_threads() by a warp, of up to 32 values: in all lanes.
__device__ __forceinline__ double warp_tree(double value) {
  return __shfl_sync(kAllLanes, sum_of_warp(value), 0);
}

/// Merges up to 32 parts by one warp: lanes take words, and lanes take parts' moments. @param words of
/// the first part. @param out  kWords words, all of them but the hash.
__device__ __noinline__ void merge_by_warp(const uint64_t* words, uint32_t count, uint64_t* out) {
  const uint32_t lane = threadIdx.x % kWarp;
  if (count == 1) {
    for (uint32_t i = lane; i < kWords; i += kWarp) out[i] = words[i];
    return;
  }
  Moments own;
  if (lane < count) own = *reinterpret_cast<const Moments*>(words + lane * kWords + kMoments);
  // 16 lanes: integers in front of the moments, and the two sums of 128 bits. The other 16: three
  // floats and 13 of the sketch; then the sketch's last three.
  const bool whole = lane < kMoments + 4;
  const uint32_t word = lane < kMoments           ? lane
                        : whole                   ? kInts + lane - kMoments
                        : lane < kMoments + 4 + 3 ? kFloats + lane - (kMoments + 4)
                                                  : kSketch + lane - (kMoments + 7);
  static_assert(kMaxTiles <= kThreads * kWarp && kMoments + 4 == 16 &&
                kSketch + kWarp - (kMoments + 7) == kWords - 3);
  uint32_t carries = 0;
  uint64_t value = 0, more = 0;
  if (whole) {
    value = merge_whole(words, count, word, carries);
  } else {
    value = __builtin_bit_cast(uint64_t, tree_of_parts(words + word, count));
    if (lane >= kWarp - 3)
      more = __builtin_bit_cast(uint64_t, tree_of_parts(words + word + 3, count));
  }
  const uint32_t below =
      __shfl_sync(kAllLanes, carries, static_cast<int>((lane + kWarp - 1) % kWarp));
  if (word == kInts + 1 || word == kInts + 3) value += below;
  const uint32_t with = __ballot_sync(kAllLanes, lane < count && own.n != 0);
  const uint32_t origin = with == 0 ? count - 1 : __ffs(static_cast<int>(with)) - 1;
  Moments first;
  first.n = __shfl_sync(kAllLanes, own.n, static_cast<int>(origin));
  first.shift = __shfl_sync(kAllLanes, own.shift, static_cast<int>(origin));
  first.shift_low = __shfl_sync(kAllLanes, own.shift_low, static_cast<int>(origin));
  first.offset = __shfl_sync(kAllLanes, own.offset, static_cast<int>(origin));
  CommonMean mean(first);
  const double n = warp_tree(own.n);
  mean.set(warp_tree(mean.share(own)), n);
  const double m2 = warp_tree(mean.m2(own));
  out[word] = value;
  if (lane >= kWarp - 3) out[word + 3] = more;
  if (lane == 0) *reinterpret_cast<Moments*>(out + kMoments) = mean.moments(n, m2);
}

/// Shared memory through which the threads of a block exchange results.
struct TensorLevel {
  double sums[3][2];
  uint64_t total[kWords];
};

__device__ __forceinline__ double sum_of_two(double value, double (&sums)[2]) {
  value = sum_of_warp(value);
  if (threadIdx.x % kWarp == 0 && threadIdx.x < 2 * kWarp) sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  return add(sums[0], sums[1]);
}

/// Merges up to 64 parts by a block: their moments by its first two warps.
__device__ __forceinline__ void merge_groups(const uint64_t* words, uint32_t count,
                                             TensorLevel& level) {
  const uint32_t thread = threadIdx.x;
  if (count == 1) {
    for (uint32_t i = thread; i < kWords; i += kFoldThreads) level.total[i] = words[i];
    __syncthreads();
    return;
  }
  Moments own;
  if (thread < count) own = *reinterpret_cast<const Moments*>(words + thread * kWords + kMoments);
  const auto part = [&](uint32_t i) -> const Partial& {
    return *reinterpret_cast<const Partial*>(words + i * kWords);
  };
  CommonMean mean(part(first_with_values(count, part)).moments);
  // A warp each takes integers and floats, beside those.
  if (thread / kWarp == 2) {
    const uint32_t lane = thread % kWarp;
    const uint32_t word = lane < kMoments ? lane : kInts + lane - kMoments;
    uint32_t carries = 0;
    uint64_t value = 0;
    if (lane < 16) value = merge_whole(words, count, word, carries);
    const uint32_t below =
        __shfl_sync(kAllLanes, carries, static_cast<int>((lane + kWarp - 1) % kWarp));
    if (word == kInts + 1 || word == kInts + 3) value += below;
    if (lane < 16) level.total[word] = value;
  } else if (thread / kWarp == 3) {
    const uint32_t lane = thread % kWarp;
    if (lane < 3 + kSketchBuckets) {
      const uint32_t word = lane < 3 ? kFloats + lane : kSketch + lane - 3;
      level.total[word] = __builtin_bit_cast(uint64_t, tree_of_parts(words + word, count));
    }
  }
  const double n = sum_of_two(own.n, level.sums[0]);
  mean.set(sum_of_two(mean.share(own), level.sums[1]), n);
  const double m2 = sum_of_two(mean.m2(own), level.sums[2]);
  if (thread == 0) *reinterpret_cast<Moments*>(level.total + kMoments) = mean.moments(n, m2);
  __syncthreads();
}

__device__ __forceinline__ void fold_tensor(const FoldJob& job, const Fold& fold) {
  __shared__ uint64_t groups[kThreads * kWords];
  __shared__ TensorLevel level;
  const Tiling tiling = make_tiling(job.bytes);
  const auto* const log = pointer_to<const LogPlace>(fold.log) + job.place;
  const Partial* const tiles = log + log_places(0);
  auto& slot = *pointer_to<ResultSlot>(fold.slots + job.slot);
  const uint32_t thread = threadIdx.x;
  // First: their loads and products run beside the merges of other warps.
  write_range_hashes(tiling, tiles, slot, thread, kFoldThreads);
  if (job.samples != 0) {
    const auto* const words = reinterpret_cast<const uint64_t*>(tiles);
    CONVTRACE_ROLLED
    for (uint32_t group = thread / kWarp; group < tiling.groups; group += kFoldThreads / kWarp)
      merge_by_warp(words + uint64_t{group} * tiling.tiles_per_group * kWords,
                    tiling.group_size(group), groups + group * kWords);
    __syncthreads();
    merge_groups(groups, tiling.groups, level);
    if (thread < kWords)
      reinterpret_cast<uint64_t*>(&slot.total)[thread] =
          thread == kHashWord ? tiles[0].hash : level.total[thread];
    if (thread < job.samples)
      slot.samples[thread] = reinterpret_cast<const SampleRecord*>(log)->samples[thread];
  }
  __threadfence_system();
  __syncthreads();
  if (thread == 0) *static_cast<volatile uint64_t*>(&slot.sequence) = job.sequence;
}

}  // namespace
}  // namespace convtrace::stats

extern "C" __global__ __launch_bounds__(convtrace::stats::kFoldThreads) void convtrace_fold(
    const __grid_constant__ convtrace::stats::Fold fold) {
  if (fold.count == 0) return;  // launched once, so that it is loaded
  convtrace::stats::fold_tensor(fold.jobs[blockIdx.x], fold);
}

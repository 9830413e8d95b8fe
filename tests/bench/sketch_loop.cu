// What a sketch costs in a kernel that reads its elements once: the loop over rows of a tile, with
// and without it, for kernel_report.py to count the instructions of. Its sums have the order of
// cupti/stats/tile/sketch.h. It is compiled, never run.

#include "cupti/stats/tile/sketch.h"

namespace convtrace::stats {
namespace {

constexpr uint32_t kRows = 4;  // a turn of the loop

/// sketch_factor() by one operation; from C++ ptxas makes two of it.
__device__ __forceinline__ float factor_of(uint32_t state) {
  const auto plus = __builtin_bit_cast(uint32_t, sketch_factor<float>(0));
  uint32_t bits;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(bits) : "r"(state), "r"(0x80000000), "r"(plus));
  return __builtin_bit_cast(float, bits);
}

/// Two running sums a thread. Where the rotation changes they go to the thread that has their place
/// now, inside the threads of one turn. That odd turns are half a round further is the same for all
/// rows of a thread, so it can wait for the end.
template <DType D>
struct RunningSketch {
  static constexpr uint32_t kSize = sizeof(typename Element<D>::Bits);
  static constexpr uint32_t kRowsOfSegment =
      kTurnsPerRow<D> < kSegmentTurns ? kSegmentTurns / kTurnsPerRow<D> : 1;
  static constexpr uint32_t kSegmentsOfRow =
      kTurnsPerRow<D> > kSegmentTurns ? kTurnsPerRow<D> / kSegmentTurns : 1;
  uint32_t signs, places;  ///< states of the generator
  uint32_t rotation = 0;
  float sum[2] = {};
  double total[2] = {};

  __device__ explicit RunningSketch(uint64_t tile) {
    const uint64_t first = tile + threadIdx.x * kPerGroup<D>;
    signs = advance(SketchSeeds{}.signs, sketch_steps(first / 4));
    places = advance(SketchSeeds{}.places, sketch_steps(first / kTurnElements / kSegmentTurns));
  }

  __device__ __forceinline__ void rotate(uint32_t to) {
    const uint32_t from = threadIdx.x + (to - rotation) * kSize;
    for (float& running : sum) running = __shfl_sync(0xFFFFFFFF, running, from, 8 * kSize);
    rotation = to;
  }

  __device__ __forceinline__ void add(const Group& group, uint32_t row) {
    if (row % kRowsOfSegment == 0) {
      rotate(places >> 29);
      places = advance(places, sketch_steps(kSegmentsOfRow));
    }
    uint32_t state = signs;
    for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
      if (e > 0 && e % 4 == 0) state = advance(state, sketch_steps(1));
      const float factor = factor_of(state << e % 4);
      const float value = Element<D>::narrow_value(element_of<D>(group, e));
      sum[e % 2] = fma(value, factor, sum[e % 2]);
    }
    signs = advance(signs, sketch_steps(kPerRow<D> / 4));
  }

  __device__ __forceinline__ void flush() {
    rotate(0);
    for (uint32_t i = 0; i < 2; ++i) {
      total[i] = stats::add(total[i], static_cast<double>(sum[i]));
      sum[i] = 0;
    }
  }
};

/// The work of a loop without sketch: every word is used.
struct Words {
  uint32_t all = 0;
  __device__ __forceinline__ void add(const Group& group) {
    all ^= group.word[0] ^ group.word[1] ^ group.word[2] ^ group.word[3];
  }
};

template <DType D, bool WithSketch>
__device__ __forceinline__ void walk_tile(const uint4* data, double* out, uint32_t chains,
                                          uint64_t tile) {
  RunningSketch<D> sketch(tile);
  Words words;
  data += threadIdx.x;
#pragma unroll 1
  for (uint32_t row = 0; row < chains * kChainRows<D>; row += kRows) {
    Group groups[kRows];
    for (uint32_t i = 0; i < kRows; ++i) {
      const uint4 loaded = __ldcs(data + (row + i) * kThreads);
      groups[i] = {{loaded.x, loaded.y, loaded.z, loaded.w}};
    }
    for (uint32_t i = 0; i < kRows; ++i) {
      words.add(groups[i]);
      if constexpr (WithSketch) sketch.add(groups[i], i);
    }
    if (WithSketch && (row + kRows) % kChainRows<D> == 0) sketch.flush();
  }
  out[threadIdx.x] = sketch.total[0];
  out[threadIdx.x + kThreads] = sketch.total[1];
  out[threadIdx.x + 2 * kThreads] = words.all;
}

}  // namespace
}  // namespace convtrace::stats

#define CONVTRACE_LOOP(NAME, DTYPE, WITH)                                                         \
  extern "C" __global__ __launch_bounds__(convtrace::stats::kThreads, 6) void sketch_loop_##NAME( \
      const uint4* data, double* out, uint32_t chains, uint64_t tile) {                           \
    convtrace::stats::walk_tile<convtrace::format::DType::DTYPE, WITH>(data, out, chains, tile);  \
  }
CONVTRACE_LOOP(f32, kF32, true)
CONVTRACE_LOOP(bf16, kBF16, true)
CONVTRACE_LOOP(f8e4m3fn, kF8E4M3FN, true)
CONVTRACE_LOOP(bare, kF32, false)

#pragma once
/// @file thread_sketch.h
/// The sketch of a tile while its elements are read for everything else: by a thread that takes the
/// same group of every row. Floats of up to 32 bits.
///
/// A thread keeps the two running sums of one lane of sketch.h. Where the rotation changes, another
/// thread of the same turn takes that lane's next group, so the sums go to it; turns of a row lie
/// within a warp. That odd turns are half a round further is the same for all rows of a thread, so
/// it is only seen in the lane that it has at the end.
///
/// Threads:  all of a warp call it together.
/// Source:   the sums and their order are those of sketch_lane().

#include <cstdint>

#include "cupti/stats/tile/packed_halves.h"
#include "cupti/stats/tile/sketch.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

/// Types whose turns lie within a warp.
template <DType D>
inline constexpr bool kHasThreadSketch = kHasSketch<D> && sizeof(typename Element<D>::Bits) <= 4;

/// @tparam Warp  `float shuffle(float value, uint32_t from, uint32_t width)` gives the value of
/// thread `from` mod `width` among the caller's `width` neighbours.
template <DType D, typename Warp>
class ThreadSketch {
 public:
  /// @param first  element of the tile. @param thread 0..63
  CONVTRACE_HD ThreadSketch(uint64_t first, uint32_t thread, Warp warp = {})
      : thread_(thread),
        signs_(advance(SketchSeeds{}.signs, sketch_steps(own(first) / 4))),
        places_(advance(SketchSeeds{}.places,
                        sketch_steps(own(first) / kTurnElements / kSegmentTurns))),
        warp_(warp) {}

  /// @param chunk  of finite elements or, instead of others, zeros. @param row  of the first group in
  /// the tile, a multiple of 4.
  CONVTRACE_HD void add(const Chunk& chunk, uint32_t row) {
    CONVTRACE_UNROLLED
    for (uint32_t i = 0; i < kChunkGroups; ++i) {
      if (i % kRowsOfSegment == 0) {
        rotate(places_ >> 29);
        places_ = advance(places_, sketch_steps(kSegmentsOfRow));
      }
      add(chunk.group[i]);
    }
    if ((row + kChunkGroups) % kChainRows<D> == 0) flush();
  }

  /// @return the sums of lane().
  CONVTRACE_HD SketchPair close() {
    flush();
    return total_;
  }

  [[nodiscard]] CONVTRACE_HD uint32_t lane() const {
    constexpr uint32_t kHalfRound = kSketchPlaces / 2 * kSize;
    const uint32_t odd_turn = thread_ / kTurnThreads % 2;
    return thread_ - thread_ % kTurnThreads + (thread_ + odd_turn * kHalfRound) % kTurnThreads;
  }

 private:
  static constexpr uint32_t kSize = sizeof(typename Element<D>::Bits);
  static constexpr uint32_t kTurnThreads = kSketchPlaces * kSize;
  static constexpr uint32_t kRowsOfSegment =
      kTurnsPerRow<D> < kSegmentTurns ? kSegmentTurns / kTurnsPerRow<D> : 1;
  static constexpr uint32_t kSegmentsOfRow =
      kTurnsPerRow<D> > kSegmentTurns ? kTurnsPerRow<D> / kSegmentTurns : 1;
  static_assert(kChunkGroups % kRowsOfSegment == 0 && kChainRows<D> % kChunkGroups == 0);

  /// @return the thread's first element.
  [[nodiscard]] CONVTRACE_HD uint64_t own(uint64_t first) const {
    return first + thread_ * kPerGroup<D>;
  }

  CONVTRACE_HD void rotate(uint32_t to) {
    const uint32_t from = thread_ + (to - rotation_) * kSize;
    for (float& sum : sum_) sum = warp_.shuffle(sum, from, kTurnThreads);
    rotation_ = to;
  }

  CONVTRACE_HD void add(const Group& group) {
    uint32_t state = signs_;
    CONVTRACE_UNROLLED
    for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
      if (e > 0 && e % 4 == 0) state = advance(state, sketch_steps(1));
      sum_[e % 2] = fma(value_of(group, e), factor_of(state << e % 4), sum_[e % 2]);
    }
    signs_ = advance(signs_, sketch_steps(kPerRow<D> / 4));
  }

  CONVTRACE_HD void flush() {
    rotate(0);
    for (uint32_t i = 0; i < 2; ++i) {
      total_.sum[i] = stats::add(total_.sum[i], static_cast<double>(sum_[i]));
      sum_[i] = 0;
    }
  }

  /// @return element e over kHalfUnit. Where other sums want the same values they are computed once.
  CONVTRACE_HD static float value_of(const Group& group, uint32_t e) {
    if constexpr (kHasHalves<D>) {
      constexpr uint32_t kPerWord = 4 / kSize;
      const uint32_t part = e % kPerWord;
      return half_value<D>(halves_of<D>(group.word[e / kPerWord], part % kHalvesOfWord<D>),
                           part / kHalvesOfWord<D>);
    } else {
      return Element<D>::narrow_value(element_of<D>(group, e));
    }
  }

  /// @return sketch_factor() times kHalfUnit, by one operation; from C++ ptxas makes two of it.
  CONVTRACE_HD static float factor_of(uint32_t state) {
    const auto plus = __builtin_bit_cast(uint32_t, sketch_factor<float>(0) * kHalfUnit<D>);
#if defined(__CUDA_ARCH__)
    uint32_t bits;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(bits) : "r"(state), "r"(0x80000000), "r"(plus));
    return __builtin_bit_cast(float, bits);
#else
    return __builtin_bit_cast(float, plus | (state & 0x80000000));
#endif
  }

  uint32_t thread_;
  uint32_t signs_, places_;  ///< states of the generator
  uint32_t rotation_ = 0;    ///< the place of the turn's first 16 elements
  float sum_[2] = {};
  SketchPair total_;
  Warp warp_;
};

}  // namespace convtrace::stats

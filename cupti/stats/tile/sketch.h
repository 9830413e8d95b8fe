#pragma once
/// @file sketch.h
/// The sketch of a tile: 16 sums of its elements with signs, by 64 lanes that need nothing of each
/// other.
///
/// A turn of 128 elements has eight places of 16. Lane l takes one group of 16 bytes of each row:
/// of turn l / (8 s) of the row, s the bytes of an element, the group l mod s of what falls on
/// place l / s mod 8. It adds the group's elements with even and with odd index to two running sums
/// in f32, which go to f64 after 32 additions each (4096 elements of the tile); f64 is summed in
/// f64. thread_sketch.h has the same sums for threads that read other groups.
///
/// Values are scaled by 2^-32, so that no sum of the largest finite values overflows. Adding a zero
/// changes no sum but for the sign of a zero, which ends in finalize.h.

#include <cstdint>
#include <type_traits>

#include "cupti/stats/tile/partial.h"
#include "cupti/stats/tile/sketch_index.h"
#include "cupti/stats/tile/tiling.h"
#include "format/model/stats.h"

namespace convtrace::stats {

inline constexpr int kSketchScale = -32;  ///< sums are of values times 2^-32
inline constexpr uint32_t kChainElements = 4096;
static_assert(kSketchBuckets == format::Sketch::kBuckets);
static_assert(kSketchBuckets == 2 * kSketchPlaces);

template <DType D>
inline constexpr bool kHasSketch = Element<D>::kFloat;
template <DType D>
inline constexpr uint32_t kTurnsPerRow = kPerRow<D> / kTurnElements;
/// Rows until f32 sums go to f64; 0 if sums are f64.
template <DType D>
inline constexpr uint32_t kChainRows = kPerGroup<D> == 2 ? 0 : kChainElements / kPerRow<D>;

/// 2^-32 with a sign.
template <typename Sum>
CONVTRACE_HD Sum sketch_factor(uint32_t sign) {
  if constexpr (sizeof(Sum) == 8) {
    return __builtin_bit_cast(double, uint64_t{sign} << 32 | uint64_t{1023 + kSketchScale} << 52);
  } else {
    return __builtin_bit_cast(float, sign | uint32_t{127 + kSketchScale} << 23);
  }
}

/// Sums of a lane: over elements with even index, and with odd index.
struct SketchPair {
  double sum[2] = {};
};

/// @param lane 0..63. @param source as for thread_totals.
template <DType D, typename Source>
CONVTRACE_HD SketchPair sketch_lane(const Source& source, TileExtent tile, uint32_t lane,
                                    SketchSeeds seeds = {}) {
  using E = Element<D>;
  using Sum = std::conditional_t<kPerGroup<D> == 2, double, float>;
  constexpr uint32_t kGroupsPerPlace = kPlaceElements / kPerGroup<D>;
  const uint32_t turn_of_row = lane / (kSketchPlaces * kGroupsPerPlace);
  const uint32_t place = lane / kGroupsPerPlace % kSketchPlaces;
  const uint32_t in_place = lane % kGroupsPerPlace * kPerGroup<D>;
  SketchWalk walk(tile.first / kTurnElements + turn_of_row, seeds);
  SketchPair total;
  Sum sum[2] = {};
  const auto flush = [&] {
    for (uint32_t i = 0; i < 2; ++i) {
      total.sum[i] = add(total.sum[i], static_cast<double>(sum[i]));
      sum[i] = 0;
    }
  };
  uint32_t row = 0;
  CONVTRACE_ROLLED
  for (uint64_t begin = turn_of_row * kTurnElements; begin < tile.count; begin += kPerRow<D>) {
    const SketchTurn turn = walk.turn();
    const uint32_t of_turn = (place - turn.rotation) % kSketchPlaces * kPlaceElements + in_place;
    const uint64_t first = begin + of_turn;
    if (first < tile.count) {
      const uint64_t left = tile.count - first;
      const auto valid = static_cast<uint32_t>(left < kPerGroup<D> ? left : kPerGroup<D>);
      const Group group = source.load(tile.first + first, valid);
      uint32_t state = turn.signs;
      for (uint32_t bit = 0; bit < 5; ++bit) {
        if ((of_turn / 4 >> bit) % 2 != 0) state = advance(state, sketch_steps(1u << bit));
      }
      for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
        if (e > 0 && e % 4 == 0) state = advance(state, sketch_steps(1));
        const auto bits = element_of<D>(group, e);
        if (e >= valid || !E::finite(bits)) continue;
        Sum value;
        if constexpr (sizeof(Sum) == 8) value = E::value(bits);
        if constexpr (sizeof(Sum) == 4) value = E::narrow_value(bits);
        const Sum factor = sketch_factor<Sum>(sketch_sign(state, of_turn + e));
        sum[e % 2] = fma(value, factor, sum[e % 2]);
      }
    }
    if (kChainRows<D> != 0 && ++row % kChainRows<D> == 0) flush();
    walk.template skip<kTurnsPerRow<D>>();
  }
  flush();
  return total;
}

inline constexpr uint32_t kSketchTerms =
    kThreads / kSketchPlaces;  ///< terms of each of the 16 sums

/// @param element_bytes  taken_bytes() of the tensor's type. @return the lane of a place's term.
CONVTRACE_HD constexpr uint32_t sketch_bucket_lane(uint32_t element_bytes, uint32_t place,
                                                   uint32_t term) {
  return (term / element_bytes * kSketchPlaces + place) * element_bytes + term % element_bytes;
}

/// @param lanes of all 64. @param element_bytes  taken_bytes() of the tensor's type. @return one of the 16 sums.
CONVTRACE_HD double sketch_bucket(const SketchPair* lanes, uint32_t element_bytes,
                                  uint32_t bucket) {
  const uint32_t place = bucket % kSketchPlaces;
  double total = 0;
  for (uint32_t i = 0; i < kSketchTerms; ++i) {
    const uint32_t lane = sketch_bucket_lane(element_bytes, place, i);
    total = add(total, lanes[lane].sum[bucket / kSketchPlaces]);
  }
  return total;
}

}  // namespace convtrace::stats

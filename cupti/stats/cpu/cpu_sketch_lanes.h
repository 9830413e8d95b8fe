// Part of cpu_sketch.h: how a vector takes the groups of eight or sixteen lanes of sketch.h.
#pragma once

#include "cupti/stats/cpu/simd.h"
#include "cupti/stats/tile/sketch.h"

namespace convtrace::stats {
namespace {

/// Lanes of one vector. They share a turn, which has eight of types of one byte.
template <DType D>
constexpr uint32_t kSketchLanes = kVectorBytes == 64 && sizeof(typename Element<D>::Bits) > 1 ? 16
                                                                                              : 8;
template <DType D>
using LaneWords = Vector<uint32_t, 4 * kSketchLanes<D>>;
template <DType D>
using LaneSumsOf = Vector<float, 4 * kSketchLanes<D>>;

/// Which of the lanes a vector's element belongs to, behind transpose().
template <DType D>
constexpr uint32_t lane_at(uint32_t element) {
  return element % 4 * (kSketchLanes<D> / 4) + element / 4;
}

/// Where a vector's lanes find their groups in a turn, and how far from the turn's first their
/// states are.
template <DType D>
struct LaneJumps {
  static constexpr uint32_t kStates = kPerGroup<D> / 4;  ///< generator states of a group
  alignas(kVectorBytes) uint32_t mul[kStates][kSketchLanes<D>] = {};
  alignas(kVectorBytes) uint32_t add[kStates][kSketchLanes<D>] = {};
  uint32_t offset[kSketchLanes<D>] = {};  ///< bytes
};

/// By rotation, and by vector of the turn.
template <DType D>
struct TurnJumps {
  static constexpr uint32_t kSize = sizeof(typename Element<D>::Bits);
  static constexpr uint32_t kLanes = kSketchLanes<D>;
  static constexpr uint32_t kVectors = kSketchPlaces * kSize / kLanes;  ///< vectors of a turn
  LaneJumps<D> of[kSketchPlaces][kVectors] = {};

  constexpr TurnJumps() {
    for (uint32_t rotation = 0; rotation < kSketchPlaces; ++rotation) {
      for (uint32_t i = 0; i < kVectors * kLanes; ++i) {
        const uint32_t place = (i / kSize - rotation) % kSketchPlaces;
        const uint32_t group = place * kSize + i % kSize;
        LaneJumps<D>& jumps = of[rotation][i / kLanes];
        jumps.offset[i % kLanes] = group * kGroupBytes;
        for (uint32_t element = 0; element < kLanes; ++element) {
          if (lane_at<D>(element) != i % kLanes) continue;
          for (uint32_t k = 0; k < LaneJumps<D>::kStates; ++k) {
            const SketchStep step = sketch_steps(group * LaneJumps<D>::kStates + k);
            jumps.mul[k][element] = step.mul;
            jumps.add[k][element] = step.add;
          }
        }
      }
    }
  }
};

/// The groups of a quarter of the lanes. They are neighbours where they have one place, or are the
/// two halves of the vector.
template <DType D>
CONVTRACE_INLINE LaneWords<D> load_groups(const std::byte* turn, const LaneJumps<D>& jumps,
                                          uint32_t quarter) {
  constexpr uint32_t kGroups = kSketchLanes<D> / 4;
  const uint32_t* offset = jumps.offset + quarter * kGroups;
  if constexpr (kGroups <= sizeof(typename Element<D>::Bits)) {
    return load<LaneWords<D>>(turn + offset[0]);
  } else {
    using Half = Vector<uint32_t, 2 * kSketchLanes<D>>;
    const auto low = load<Half>(turn + offset[0]);
    const auto high = load<Half>(turn + offset[kGroups / 2]);
    if constexpr (kGroups == 2) {
      return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
    } else {
      return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
                                     15);
    }
  }
}

// Interleaves the lower or the upper halves of each 16 bytes.
CONVTRACE_INLINE U32x8 low_words(U32x8 a, U32x8 b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
}
CONVTRACE_INLINE U32x8 high_words(U32x8 a, U32x8 b) {
  return __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
}
CONVTRACE_INLINE U32x8 low_pairs(U32x8 a, U32x8 b) {
  return __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
}
CONVTRACE_INLINE U32x8 high_pairs(U32x8 a, U32x8 b) {
  return __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
}
#if defined(__AVX512F__)
using U32x16 = Vector<uint32_t, 64>;
CONVTRACE_INLINE U32x16 low_words(U32x16 a, U32x16 b) {
  return as<U32x16>(_mm512_unpacklo_epi32(as<__m512i>(a), as<__m512i>(b)));
}
CONVTRACE_INLINE U32x16 high_words(U32x16 a, U32x16 b) {
  return as<U32x16>(_mm512_unpackhi_epi32(as<__m512i>(a), as<__m512i>(b)));
}
CONVTRACE_INLINE U32x16 low_pairs(U32x16 a, U32x16 b) {
  return as<U32x16>(_mm512_unpacklo_epi64(as<__m512i>(a), as<__m512i>(b)));
}
CONVTRACE_INLINE U32x16 high_pairs(U32x16 a, U32x16 b) {
  return as<U32x16>(_mm512_unpackhi_epi64(as<__m512i>(a), as<__m512i>(b)));
}
#endif

/// From the groups of all lanes to their first words, their second words and so on.
template <typename Words>
CONVTRACE_INLINE void transpose(Words (&v)[4]) {
  const Words a = low_words(v[0], v[1]), b = high_words(v[0], v[1]);
  const Words c = low_words(v[2], v[3]), d = high_words(v[2], v[3]);
  v[0] = low_pairs(a, c);
  v[1] = high_pairs(a, c);
  v[2] = low_pairs(b, d);
  v[3] = high_pairs(b, d);
}

}  // namespace
}  // namespace convtrace::stats

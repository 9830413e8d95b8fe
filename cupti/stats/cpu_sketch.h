// Part of cpu_tile_impl.h: the lanes of sketch.h, eight at a time.
//
// A vector is four lanes' words of two groups; transposed, it is one word of eight lanes, so that
// one state of the generator serves the four elements after each other and sums stay where they
// are: it is the data that is taken from rotated places.
#pragma once

#include "cupti/stats/simd.h"
#include "cupti/stats/sketch.h"

namespace convtrace::stats {
namespace {

constexpr uint32_t kSketchLanes = 8;  ///< of one vector
constexpr uint32_t kSketchVectors = kThreads / kSketchLanes;

/// Which of eight lanes a vector's element belongs to, behind transpose().
constexpr uint32_t lane_at(uint32_t element) { return element % 4 * 2 + element / 4; }

/// Where eight lanes find their groups in a turn, and how far from the turn's first their states
/// are.
template <DType D>
struct LaneJumps {
  static constexpr uint32_t kStates = kPerGroup<D> / 4;  ///< of a group
  alignas(32) uint32_t mul[kStates][kSketchLanes] = {};
  alignas(32) uint32_t add[kStates][kSketchLanes] = {};
  uint32_t offset[kSketchLanes] = {};  ///< bytes
};

/// By rotation, and by vector of the turn.
template <DType D>
struct TurnJumps {
  static constexpr uint32_t kSize = sizeof(typename Element<D>::Bits);
  LaneJumps<D> of[kSketchPlaces][kSize] = {};

  constexpr TurnJumps() {
    for (uint32_t rotation = 0; rotation < kSketchPlaces; ++rotation) {
      for (uint32_t i = 0; i < kSize * kSketchLanes; ++i) {
        const uint32_t place = (i / kSize - rotation) % kSketchPlaces;
        const uint32_t group = place * kSize + i % kSize;
        LaneJumps<D>& jumps = of[rotation][i / kSketchLanes];
        jumps.offset[i % kSketchLanes] = group * kGroupBytes;
        for (uint32_t element = 0; element < kSketchLanes; ++element) {
          if (lane_at(element) != i % kSketchLanes) continue;
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

/// The groups of lanes 2 v and 2 v + 1. Only types of one byte have them at two places.
template <DType D>
CONVTRACE_INLINE U32x8 load_groups(const std::byte* turn, const LaneJumps<D>& jumps, uint32_t v) {
  if constexpr (sizeof(typename Element<D>::Bits) == 1) {
    using U32x4 = Vector<uint32_t, 16>;
    return __builtin_shufflevector(load<U32x4>(turn + jumps.offset[2 * v]),
                                   load<U32x4>(turn + jumps.offset[2 * v + 1]), 0, 1, 2, 3, 4, 5, 6,
                                   7);
  } else {
    return load<U32x8>(turn + jumps.offset[2 * v]);
  }
}

/// From the groups of eight lanes to their first words, their second words and so on.
CONVTRACE_INLINE void transpose(U32x8 (&v)[4]) {
  U64x4 half[4];  // of two vectors each: words 0 and 1, words 2 and 3
  for (uint32_t i = 0; i < 4; i += 2) {
    half[i] = as<U64x4>(__builtin_shufflevector(v[i], v[i + 1], 0, 8, 1, 9, 4, 12, 5, 13));
    half[i + 1] = as<U64x4>(__builtin_shufflevector(v[i], v[i + 1], 2, 10, 3, 11, 6, 14, 7, 15));
  }
  for (uint32_t i = 0; i < 2; ++i) {
    v[2 * i] = as<U32x8>(__builtin_shufflevector(half[i], half[i + 2], 0, 4, 2, 6));
    v[2 * i + 1] = as<U32x8>(__builtin_shufflevector(half[i], half[i + 2], 1, 5, 3, 7));
  }
}

/// Sums of the 64 lanes of a tile.
template <DType D>
class TileSketch {
 public:
  using E = Element<D>;
  using Bits = typename E::Bits;

  explicit TileSketch(uint64_t first_element) : walk_(first_element / kTurnElements) {}

  /// Whole rows of finite elements.
  void add_rows(const std::byte* data, uint32_t rows) {
    while (rows > 0) {
      uint32_t part = rows;
      if constexpr (kChainRows<D> != 0) {
        const uint32_t room = kChainRows<D> - chain_rows_;
        part = rows < room ? rows : room;
      }
      add_part(data, part);
      data += part * kRowBytes;
      rows -= part;
      chain_rows_ += part;
      if (chain_rows_ == kChainRows<D>) flush();
    }
  }

  /// Anything; the last row may be a part of one.
  void add_any(const std::byte* data, uint32_t bytes) {
    for (uint32_t at = 0; at < bytes; at += kRowBytes) {
      Bits row[kPerRow<D>] = {};
      const uint32_t left = bytes - at < kRowBytes ? bytes - at : kRowBytes;
      std::memcpy(row, data + at, left);
      for (Bits& bits : row) bits = E::finite(bits) ? bits : 0;
      add_rows(reinterpret_cast<const std::byte*>(row), 1);
    }
  }

  void close(double (&buckets)[kSketchBuckets]) {
    flush();
    SketchPair lanes[kThreads];
    for (uint32_t i = 0; i < kThreads; ++i) {
      const uint32_t vector = i / kSketchLanes * kSketchLanes;
      SketchPair& lane = lanes[vector + (kWide64 ? i % kSketchLanes : lane_at(i % kSketchLanes))];
      for (uint32_t parity = 0; parity < 2; ++parity) lane.sum[parity] = total_[parity][i];
    }
    for (uint32_t i = 0; i < kSketchBuckets; ++i)
      buckets[i] = sketch_bucket(lanes, sizeof(Bits), i);
  }

 private:
  static constexpr bool kWide64 = sizeof(Bits) == 8;

  /// f32 sums as they come out of transpose(), to f64.
  void flush() {
    if constexpr (!kWide64) {
      for (uint32_t parity = 0; parity < 2; ++parity) {
        for (uint32_t i = 0; i < kThreads; ++i) {
          total_[parity][i] += static_cast<double>(chain_[parity][i]);
          chain_[parity][i] = 0;
        }
      }
    }
    chain_rows_ = 0;
  }

  void add_part(const std::byte* data, uint32_t rows) {
    if constexpr (kWide64) {
      for (uint32_t row = 0; row < rows; ++row) add_wide(data + row * kRowBytes);
    } else {
      SketchTurn turns[kChainElements / kTurnElements];
      for (uint32_t i = 0; i < rows * kTurnsPerRow<D>; ++i) {
        turns[i] = walk_.turn();
        walk_.template skip<1>();
      }
      for (uint32_t vector = 0; vector < kSketchVectors; ++vector)
        add_vector(data, rows, turns, vector);
    }
  }

  /// A row of f64, which is one turn; totals are in the order of lanes.
  void add_wide(const std::byte* data) {
    const SketchTurn turn = walk_.turn();
    walk_.template skip<1>();
    uint32_t state = turn.signs;
    for (uint32_t i = 0; i < kTurnStates; ++i, state = advance(state, sketch_steps(1))) {
      const uint32_t lane = (i / 4 + turn.rotation) % kSketchPlaces * kSketchPlaces + i % 4 * 2;
      for (uint32_t e = 0; e < 4; ++e) {
        double& sum = total_[e % 2][lane + e / 2];
        sum = fma(E::value(load<Bits>(data + (4 * i + e) * sizeof(Bits))),
                  sketch_factor<double>(sketch_sign(state, e)), sum);
      }
    }
  }

  void add_vector(const std::byte* data, uint32_t rows, const SketchTurn* turns, uint32_t vector) {
    constexpr uint32_t kSize = sizeof(Bits);
    constexpr uint32_t kPerWord = 4 / kSize;
    constexpr uint32_t kStates = LaneJumps<D>::kStates;
    const uint32_t turn_of_row = vector / kSize;
    data += turn_of_row * kTurnElements * kSize;
    F32x8 sum[2] = {load<F32x8>(chain_[0] + vector * kSketchLanes),
                    load<F32x8>(chain_[1] + vector * kSketchLanes)};
    for (uint32_t row = 0; row < rows; ++row, data += kRowBytes) {
      const SketchTurn turn = turns[row * kTurnsPerRow<D> + turn_of_row];
      const LaneJumps<D>& jumps = kJumps.of[turn.rotation][vector % kSize];
      U32x8 words[4];
      for (uint32_t v = 0; v < 4; ++v) words[v] = load_groups<D>(data, jumps, v);
      transpose(words);
      U32x8 states[kStates];
      for (uint32_t k = 0; k < kStates; ++k)
        states[k] = load<U32x8>(jumps.mul[k]) * turn.signs + load<U32x8>(jumps.add[k]);
      for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
        const U32x8 top = words[e / kPerWord] << (32 - 8 * kSize * (e % kPerWord + 1));
        const U32x8 sign = (states[e / 4] << e % 4) & 0x80000000;
        sum[e % 2] = fma_lanes(as<F32x8>(unscaled(top)), as<F32x8>(sign | kFactor), sum[e % 2]);
      }
    }
    for (uint32_t parity = 0; parity < 2; ++parity)
      store(chain_[parity] + vector * kSketchLanes, sum[parity]);
  }

  /// An element in the upper bits of a word as an f32, but for a power of two: narrow_value() by a
  /// factor that goes into the other one. Both products are exact.
  CONVTRACE_INLINE static U32x8 unscaled(U32x8 top) {
    constexpr uint32_t kSize = sizeof(Bits);
    constexpr uint32_t kMagnitude = static_cast<uint32_t>(E::kMagnitudeMask) << (32 - 8 * kSize);
    return (top & 0x80000000) | ((top & kMagnitude) >> (9 + E::kMantissa - 8 * kSize));
  }
  static constexpr auto kFactor =
      static_cast<uint32_t>(127 + (kWide64 ? 0 : 127 - E::kBias) + kSketchScale) << 23;
  static constexpr TurnJumps<kWide64 ? DType::kF32 : D> kJumps{};

  SketchWalk walk_;
  uint32_t chain_rows_ = 0;
  alignas(32) float chain_[2][kThreads] = {};
  alignas(64) double total_[2][kThreads] = {};
};

/// Integers have none.
template <DType D>
requires(!kHasSketch<D>) class TileSketch<D> {
 public:
  explicit TileSketch(uint64_t /*first_element*/) {}
  void add_rows(const std::byte* /*data*/, uint32_t /*rows*/) {}
  void add_any(const std::byte* /*data*/, uint32_t /*bytes*/) {}
  void close(double (&/*buckets*/)[kSketchBuckets]) {}
};

}  // namespace
}  // namespace convtrace::stats

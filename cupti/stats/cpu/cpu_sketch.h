// Part of cpu_tile_impl.h: the lanes of sketch.h, eight or sixteen at a time.
//
// Four vectors are the groups of so many lanes; transposed, each is one word of all of them, so
// that one state of the generator serves the elements of a group after each other. Sums stay where
// they are: it is the data that is taken from rotated places.
#pragma once

#include "cupti/stats/cpu/cpu_sketch_lanes.h"
#include "cupti/stats/cpu/simd.h"
#include "cupti/stats/tile/sketch.h"

namespace convtrace::stats {
namespace {

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
    for (uint32_t i = 0; i < kSketchBuckets; ++i) {
      const double* const sums = total_[i / kSketchPlaces];
      double total = 0;
      for (const uint8_t at : kOrder.of[i % kSketchPlaces]) total = add(total, sums[at]);
      buckets[i] = total;
    }
  }

 private:
  static constexpr bool kWide64 = sizeof(Bits) == 8;

  /// Where the sums of the lanes of each place lie, in the order of sketch_bucket_lane().
  struct Order {
    uint8_t of[kSketchPlaces][kSketchTerms] = {};
    constexpr Order() {
      for (uint32_t at = 0; at < kThreads; ++at) {
        const uint32_t in_vector = at % kSketchLanes<D>;
        const uint32_t lane = kWide64 ? at : at - in_vector + lane_at<D>(in_vector);
        for (uint32_t i = 0; i < kThreads; ++i) {
          if (sketch_bucket_lane(sizeof(Bits), i / kSketchTerms, i % kSketchTerms) == lane)
            of[i / kSketchTerms][i % kSketchTerms] = static_cast<uint8_t>(at);
        }
      }
    }
  };

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
      for (uint32_t vector = 0; vector < kThreads / kSketchLanes<D>; ++vector)
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
    constexpr uint32_t kOfTurn = TurnJumps<D>::kVectors;
    using Words = LaneWords<D>;
    using Sums = LaneSumsOf<D>;
    const uint32_t turn_of_row = vector / kOfTurn;
    const uint32_t first = vector * kSketchLanes<D>;
    data += turn_of_row * kTurnElements * kSize;
    Sums sum[2] = {load<Sums>(chain_[0] + first), load<Sums>(chain_[1] + first)};
    for (uint32_t row = 0; row < rows; ++row, data += kRowBytes) {
      const SketchTurn turn = turns[row * kTurnsPerRow<D> + turn_of_row];
      const LaneJumps<D>& jumps = kJumps.of[turn.rotation][vector % kOfTurn];
      Words words[4];
      for (uint32_t i = 0; i < 4; ++i) words[i] = load_groups<D>(data, jumps, i);
      transpose(words);
      Words states[kStates];
      for (uint32_t k = 0; k < kStates; ++k)
        states[k] = load<Words>(jumps.mul[k]) * turn.signs + load<Words>(jumps.add[k]);
      for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
        const Words top = words[e / kPerWord] << (32 - 8 * kSize * (e % kPerWord + 1));
        const Words sign = (states[e / 4] << e % 4) & 0x80000000;
        sum[e % 2] = fma_lanes(as<Sums>(unscaled(top)), as<Sums>(sign | kFactor), sum[e % 2]);
      }
    }
    for (uint32_t parity = 0; parity < 2; ++parity) store(chain_[parity] + first, sum[parity]);
  }

  /// An element in the upper bits of a word as an f32, but for a power of two: narrow_value() by a
  /// factor that goes into the other one. Both products are exact.
  CONVTRACE_INLINE static LaneWords<D> unscaled(LaneWords<D> top) {
    constexpr uint32_t kSize = sizeof(Bits);
    constexpr uint32_t kMagnitude = static_cast<uint32_t>(E::kMagnitudeMask) << (32 - 8 * kSize);
    return (top & 0x80000000) | ((top & kMagnitude) >> (9 + E::kMantissa - 8 * kSize));
  }
  static constexpr auto kFactor =
      static_cast<uint32_t>(127 + (kWide64 ? 0 : 127 - E::kBias) + kSketchScale) << 23;
  static constexpr Order kOrder{};
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

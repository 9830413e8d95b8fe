#pragma once
/// @file chunk_sums.h
/// The sums of one thread for floats of 16 and 8 bits: elements of a chunk add up in f32, chunks in
/// f64. Variant 2.
///
/// A chunk has four groups of consecutive rows. The elements of one word of a group share an
/// accumulator; over the four rows they are summed by a fixed tree, elements that do not exist or
/// are not finite counting as +0. No shift is needed for the deviation: where the mean is much
/// larger than it, exponents agree, and sums and squares of so few short significands are exact in
/// f32. f16 has the longest, so no more than two of its squares are added in f32.
///
/// Squares of bf16 can leave the range of f32. A chunk whose largest magnitude is 2^60 or more, or
/// below 2^-40, is summed scaled by a power of two.
///
/// Accuracy: sums are off by at most 2^-22 of the sum of magnitudes, squares by 5 * 2^-24 of theirs
///           (every addition of a tree rounded the same way); typically by less than 1e-9. All
///           exact for f8e4m3fn but the squares, and where exponents agree.
/// Threads:  a value; the same bits on a device, in its host replay and by the vector code of the
///           CPU (cpu/cpu_chunk_sums.h).

#include <cstdint>

#include "cupti/stats/thread/thread_totals.h"
#include "cupti/stats/tile/arith.h"
#include "cupti/stats/tile/packed_halves.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

template <DType D>
inline constexpr bool kHasChunkSums = kHasHalves<D>;

/// A power of two that the elements of a chunk are multiplied by.
struct ChunkScale {
  static constexpr int kExponent = 96;
  float factor = 1;
  double sums = 1;     ///< its inverse
  double squares = 1;  ///< of the inverse

  CONVTRACE_HD static ChunkScale down() { return of(-kExponent); }
  CONVTRACE_HD static ChunkScale up() { return of(kExponent); }

 private:
  CONVTRACE_HD static double power_of_two(int exponent) {
    return __builtin_bit_cast(double, static_cast<uint64_t>(1023 + exponent) << 52);
  }
  CONVTRACE_HD static ChunkScale of(int exponent) {
    return {static_cast<float>(power_of_two(exponent)), power_of_two(-exponent),
            power_of_two(-2 * exponent)};
  }
};

/// Which chunks are summed as they are, by their largest magnitude: bits of the type.
template <DType D>
struct ChunkRange {
  static constexpr bool kLimited = D == DType::kBF16;
  static constexpr uint32_t kLeast = (127 - 40) << 7;
  static constexpr uint32_t kEnd = (127 + 60) << 7;

  CONVTRACE_HD static bool holds(uint32_t magnitude) {
    return !kLimited || magnitude == 0 || (magnitude >= kLeast && magnitude < kEnd);
  }
  CONVTRACE_HD static ChunkScale scale(uint32_t magnitude) {
    if (holds(magnitude)) return {};
    return magnitude < kLeast ? ChunkScale::up() : ChunkScale::down();
  }
};

template <DType D>
class ChunkSums {
 public:
  using E = Element<D>;
  using Bits = typename E::Bits;
  static constexpr uint32_t kParts = 4 / sizeof(Bits);  ///< elements of a word
  static constexpr uint32_t kWords = kGroupBytes / 4;
  /// Squares of one part of a word that are added in f32.
  static constexpr uint32_t kSquares = D == DType::kF16 ? 2 : kChunkGroups;

  ChunkSums() = default;
  CONVTRACE_HD explicit ChunkSums(Shift<D> /*none*/) {}

  /// @param chunk  of finite elements in the range of ChunkRange.
  CONVTRACE_HD void add_usual(const Chunk& chunk) {
    for (uint32_t word = 0; word < kWords; ++word) add_word<false>(chunk, word, {});
  }

  /// @param chunk  of finite elements; behind the tensor's end it is zero.
  CONVTRACE_HD void add_any(const Chunk& chunk, uint32_t /*left*/) {
    uint32_t largest = 0;
    chunk.for_each_rolled([&](const Group& group) {
      for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
        const uint32_t magnitude = E::magnitude(element_of<D>(group, e));
        largest = magnitude > largest ? magnitude : largest;
      }
    });
    const ChunkScale scale = ChunkRange<D>::scale(largest);
    for (uint32_t word = 0; word < kWords; ++word) add_word<true>(chunk, word, scale);
  }

  CONVTRACE_HD void put_into(ThreadTotals& totals) const {
    put(combine_lanes(sum_), combine_lanes(l1_), combine_lanes(squares_), totals);
  }
  /// @param sum and l1  of values over kHalfUnit. @param squares  of such values.
  CONVTRACE_HD static void put(double sum, double l1, double squares, ThreadTotals& totals) {
    constexpr double kUnit = kHalfUnit<D>;
    totals.sum = totals.deviations = mul(sum, kUnit);
    totals.l1 = mul(l1, kUnit);
    totals.squares = totals.squared_deviations = mul(squares, kUnit * kUnit);
  }

  /// @param[in,out] sums  of word `word`: sum, sum of magnitudes, of squares. For the vector code,
  /// which leaves rare chunks to this.
  CONVTRACE_HD void exchange(uint32_t word, double (&sums)[3]) {
    swap(sum_[word], sums[0]);
    swap(l1_[word], sums[1]);
    swap(squares_[word], sums[2]);
  }

 private:
  CONVTRACE_HD static void swap(double& a, double& b) {
    const double kept = a;
    a = b;
    b = kept;
  }
  /// @return the value of an element over kHalfUnit.
  CONVTRACE_HD static float value_of(uint32_t word, uint32_t part) {
    return half_value<D>(halves_of<D>(word, part % kHalvesOfWord<D>), part / kHalvesOfWord<D>);
  }

  CONVTRACE_HD static float tree(const float (&x)[kParts]) {
    if constexpr (kParts == 2) return add(x[0], x[1]);
    if constexpr (kParts == 4) return add(add(x[0], x[1]), add(x[2], x[3]));
  }

  template <bool Scaled>
  CONVTRACE_HD void add_word(const Chunk& chunk, uint32_t word, ChunkScale scale) {
    float sum[kParts], l1[kParts], squares[kChunkGroups / kSquares][kParts];
    for (uint32_t part = 0; part < kParts; ++part) {
      float x[kChunkGroups], a[kChunkGroups];
      for (uint32_t i = 0; i < kChunkGroups; ++i) {
        x[i] = value_of(chunk.group[i].word[word], part);
        if constexpr (Scaled) x[i] = mul(x[i], scale.factor);
        a[i] = magnitude(x[i]);
      }
      sum[part] = add(add(x[0], x[1]), add(x[2], x[3]));
      l1[part] = add(add(a[0], a[1]), add(a[2], a[3]));
      for (uint32_t i = 0; i < kChunkGroups; ++i) {
        float& of = squares[i / kSquares][part];
        of = i % kSquares == 0 ? mul(x[i], x[i]) : fma(x[i], x[i], of);
      }
    }
    const auto put_sum = [&](double& to, float value, double factor) {
      auto wide = static_cast<double>(value);
      if constexpr (Scaled) wide = mul(wide, factor);
      to = add(to, wide);
    };
    put_sum(sum_[word], tree(sum), scale.sums);
    put_sum(l1_[word], tree(l1), scale.sums);
    if constexpr (kSquares == kChunkGroups) {
      put_sum(squares_[word], tree(squares[0]), scale.squares);
    } else {
      for (uint32_t part = 0; part < kParts; ++part) {
        for (const auto& of : squares) put_sum(squares_[word], of[part], scale.squares);
      }
    }
  }

  double sum_[kWords] = {};
  double l1_[kWords] = {};
  double squares_[kWords] = {};
};

}  // namespace convtrace::stats

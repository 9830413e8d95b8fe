#pragma once
/// @file chunk_sums.h
/// The sums of one thread for floats of 16 bits and less: elements of a chunk add up in f32, chunks in
/// f64. Variant 2.
///
/// A chunk has four groups of consecutive rows. The elements that one word of a group has in all
/// rows are added in f32 by a fixed tree: over the rows, then the parts of the word. The words' sums
/// are added in f64. Elements that do not exist or are not finite count as +0. No shift is needed for
/// the deviation: where the mean is much larger than it, exponents agree, and sums and squares of so
/// few short significands are exact in f32. f16 has the longest, so no more than two of its squares
/// are added in f32.
///
/// Squares of bf16 can leave the range of f32. A chunk whose largest magnitude is 2^60 or more, or
/// below 2^-40, is summed scaled by a power of two.
///
/// Accuracy: sums are off by at most 2^-22 of the sum of magnitudes, squares by 5 * 2^-24 of theirs
///           (every addition of a tree rounded the same way); of random values sum, l1 and l2
///           by less than 3e-8 (docs/adr/0006 has a table). All exact for f8e4m3fn but the squares,
///           for f4e2m1fn, and where exponents agree.
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
  double sums = 1;     ///< 1 / factor: scales sums back
  double squares = 1;  ///< 1 / factor^2: scales sums of squares back

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
  static constexpr bool kLimited = kBf16Halves<D>;
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
  static constexpr bool kDeviates = false;
  static constexpr uint32_t kParts = 4 / sizeof(Bits);  ///< elements of a word
  static constexpr uint32_t kWords = kGroupBytes / 4;
  /// Squares of one part of a word that are added in f32.
  static constexpr uint32_t kSquares = D == DType::kF16 ? 2 : kChunkGroups;

  ChunkSums() = default;
  CONVTRACE_HD explicit ChunkSums(Shift<D> /*none*/) {}

  /// @param chunk  of finite elements in the range of ChunkRange.
  CONVTRACE_HD void add_usual(const Chunk& chunk) { add<false>(chunk, {}); }

  /// @param chunk  of finite elements; behind the tensor's end it is zero.
  CONVTRACE_HD void add_any(const Chunk& chunk, uint32_t /*left*/) {
    uint32_t largest = 0;
    chunk.for_each_rolled([&](const Group& group) {
      for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
        const uint32_t magnitude = E::magnitude(element_of<D>(group, e));
        largest = magnitude > largest ? magnitude : largest;
      }
    });
    add<true>(chunk, ChunkRange<D>::scale(largest));
  }

  CONVTRACE_HD void put_into(ThreadTotals& totals) const { put(sum, l1, squares, totals); }
  /// @param sum and l1  of values over kHalfUnit. @param squares  of such values.
  CONVTRACE_HD static void put(double sum, double l1, double squares, ThreadTotals& totals) {
    constexpr double kUnit = kHalfUnit<D>;
    totals.sum = totals.deviations = mul(sum, kUnit);
    totals.l1 = mul(l1, kUnit);
    totals.squares = totals.squared_deviations = mul(squares, kUnit * kUnit);
  }

  // So far, of values over kHalfUnit. The vector code leaves rare chunks to this.
  double sum = 0, l1 = 0, squares = 0;

 private:
  /// @return the value of an element over kHalfUnit.
  CONVTRACE_HD static float value_of(uint32_t word, uint32_t part) {
    return half_value<D>(halves_of<D>(word, part % kHalvesOfWord<D>), part / kHalvesOfWord<D>);
  }

  /// @tparam Float  float or double. @tparam Count  1, 2 or 4.
  template <typename Float, uint32_t Count>
  CONVTRACE_HD static Float tree(const Float (&x)[Count]) {
    if constexpr (Count == 1) return x[0];
    if constexpr (Count == 2) return stats::add(x[0], x[1]);
    if constexpr (Count == 4) return stats::add(stats::add(x[0], x[1]), stats::add(x[2], x[3]));
  }

  template <bool Scaled>
  CONVTRACE_HD void add(const Chunk& chunk, ChunkScale scale) {
    constexpr uint32_t kRuns = kChunkGroups / kSquares;
    double sums[kWords], l1s[kWords], all_squares[kWords];
    CONVTRACE_UNROLLED
    for (uint32_t word = 0; word < kWords; ++word) {
      float of_sum[kParts], of_l1[kParts], of_squares[kRuns][kParts];
      CONVTRACE_UNROLLED
      for (uint32_t part = 0; part < kParts; ++part) {
        float x[kChunkGroups], a[kChunkGroups];
        for (uint32_t i = 0; i < kChunkGroups; ++i) {
          x[i] = value_of(chunk.group[i].word[word], part);
          if constexpr (Scaled) x[i] = mul(x[i], scale.factor);
          a[i] = magnitude(x[i]);
        }
        of_sum[part] = tree(x);
        of_l1[part] = tree(a);
        for (uint32_t i = 0; i < kChunkGroups; ++i) {
          float& run = of_squares[i / kSquares][part];
          run = i % kSquares == 0 ? mul(x[i], x[i]) : fma(x[i], x[i], run);
        }
      }
      sums[word] = static_cast<double>(tree(of_sum));
      l1s[word] = static_cast<double>(tree(of_l1));
      all_squares[word] = squares_of(of_squares);
    }
    const auto put_sum = [](double& to, double value, double factor) {
      to = stats::add(to, Scaled ? mul(value, factor) : value);
    };
    put_sum(sum, tree(sums), scale.sums);
    put_sum(l1, tree(l1s), scale.sums);
    put_sum(squares, tree(all_squares), scale.squares);
  }

  /// @return the sum of a word's squares: in f32, or of f16 in f64.
  template <uint32_t Runs>
  CONVTRACE_HD static double squares_of(const float (&runs)[Runs][kParts]) {
    if constexpr (Runs == 1) {
      return static_cast<double>(tree(runs[0]));
    } else {
      double sums[Runs];
      for (uint32_t i = 0; i < Runs; ++i) {
        double parts[kParts];
        for (uint32_t part = 0; part < kParts; ++part)
          parts[part] = static_cast<double>(runs[i][part]);
        sums[i] = tree(parts);
      }
      return tree(sums);
    }
  }
};

}  // namespace convtrace::stats

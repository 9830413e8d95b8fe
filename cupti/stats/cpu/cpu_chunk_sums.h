// Part of cpu_tile_impl.h: sums of dense floats of 8 and 16 bits, a vector at a time, as chunk_sums.h
// has them.
#pragma once

#include <cstring>

#include "cupti/stats/cpu/cpu_sums.h"
#include "cupti/stats/cpu/simd.h"
#include "cupti/stats/cpu/simd_sums.h"
#include "cupti/stats/thread/accumulator.h"

namespace convtrace::stats {
namespace {

constexpr uint32_t kChunkBytes = kChunkGroups * kRowBytes;

template <DType D>
requires(kHasChunkSums<D>) class TileSums<D> {
 public:
  TileSums(Shift<D> /*none*/, uint64_t /*bytes*/) {}

  /// @param usual  whether all elements are finite and in the range of ChunkRange, or 0.
  void add_block(const std::byte* data, uint32_t bytes, bool usual) {
    for (; bytes >= kChunkBytes; bytes -= kChunkBytes, data += kChunkBytes)
      add_chunk(data, kRowBytes, usual);
    if (bytes == 0) return;
    alignas(kVectorBytes) std::byte padded[kChunkBytes];
    const uint32_t columns =
        bytes < kRowBytes ? (bytes + kColumnBytes - 1) / kColumnBytes * kColumnBytes : kRowBytes;
    for (uint32_t row = 0; row < kChunkGroups; ++row) {
      const uint32_t part = bytes < columns ? bytes : columns;
      std::memcpy(padded + row * kRowBytes, data + row * kRowBytes, part);
      std::memset(padded + row * kRowBytes + part, 0, columns - part);
      bytes -= part;
    }
    add_chunk(padded, columns, usual);
  }

  void put_into(ThreadTotals& totals) const {
    ChunkSums<D>::put(combine_all(sum_), combine_all(l1_), combine_all(squares_), totals);
  }

 private:
  using E = Element<D>;
  using Bits = typename E::Bits;
  using Words = Vector<uint32_t>;
  static constexpr uint32_t kParts = ChunkSums<D>::kParts;
  static constexpr uint32_t kSquares = ChunkSums<D>::kSquares;
  static constexpr uint32_t kRuns = kChunkGroups / kSquares;
  /// Vectors whose words are four by four the groups of as many threads as a vector has lanes.
  static constexpr uint32_t kColumnVectors = kGroupBytes / 4;
  static constexpr uint32_t kColumnBytes = kColumnVectors * kVectorBytes;
  static constexpr uint32_t kColumnThreads = kColumnBytes / kGroupBytes;
  static_assert(kRowBytes % kColumnBytes == 0);

  /// @param bytes  of each row, a multiple of kColumnBytes; the rest is zero.
  void add_chunk(const std::byte* data, uint32_t bytes, bool usual) {
    for (uint32_t at = 0; at < bytes; at += kColumnBytes) {
      const uint32_t thread = at / kGroupBytes;
      if (usual || usual_column(data + at)) {
        add_column(data + at, thread);
      } else {
        for (uint32_t i = 0; i < kColumnThreads; ++i)
          add_group(data + at + i * kGroupBytes, thread + i);
      }
    }
  }

  static bool usual_column(const std::byte* data) {
    for (uint32_t at = 0; at < kColumnBytes; at += kGroupBytes) {
      uint32_t largest = 0;
      for (uint32_t row = 0; row < kChunkGroups; ++row) {
        for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
          const auto bits = load<Bits>(data + row * kRowBytes + at + e * sizeof(Bits));
          const uint32_t magnitude = E::magnitude(bits);
          largest = magnitude > largest ? magnitude : largest;
        }
      }
      if (largest > E::kMaxFinite || !ChunkRange<D>::holds(largest)) return false;
    }
    return true;
  }

  /// The chunk of one thread.
  void add_group(const std::byte* data, uint32_t thread) {
    Chunk chunk;
    for (uint32_t row = 0; row < kChunkGroups; ++row)
      std::memcpy(&chunk.group[row], data + row * kRowBytes, kGroupBytes);
    ChunkSums<D> sums;
    sums.sum = sum_[thread], sums.l1 = l1_[thread], sums.squares = squares_[thread];
    sums.add_any(finite_part<D>(chunk), UINT32_MAX);
    sum_[thread] = sums.sum, l1_[thread] = sums.l1, squares_[thread] = sums.squares;
  }

  CONVTRACE_INLINE static Floats value_of(Words words, uint32_t part) {
    constexpr uint32_t kBits = 8 * sizeof(Bits);
    const Words top = words << (32 - kBits * (part + 1));
    if constexpr (D == DType::kBF16) {
      return as<Floats>(part == 0 ? top : words & 0xFFFF0000);
    } else {
      constexpr uint32_t kMagnitude = static_cast<uint32_t>(E::kMagnitudeMask) << (32 - kBits);
      constexpr float kScale =
          __builtin_bit_cast(float, static_cast<uint32_t>(254 - E::kBias) << 23) / kHalfUnit<D>;
      const Words bits = (top & 0x80000000) | ((top & kMagnitude) >> (9 + E::kMantissa - kBits));
      return as<Floats>(bits) * kScale;
    }
  }

  CONVTRACE_INLINE static Floats magnitudes(Floats x) {
    return as<Floats>(as<Words>(x) & 0x7FFFFFFF);
  }

  CONVTRACE_INLINE static Floats tree(const Floats (&x)[kParts]) {
    if constexpr (kParts == 2) return x[0] + x[1];
    if constexpr (kParts == 4) return (x[0] + x[1]) + (x[2] + x[3]);
  }

  /// Adds the sums of the words of each group to the sum of its thread.
  CONVTRACE_INLINE static void put(double* sums, const WideFloats (&words)[kColumnVectors]) {
    for (uint32_t i = 0; i < 2; ++i) {
      const WideFloats &a = words[2 * i], &b = words[2 * i + 1];
      const F64s groups = sum_neighbours(sum_neighbours(a.half[0], a.half[1]),
                                         sum_neighbours(b.half[0], b.half[1]));
      double* const to = sums + i * kWide;
      store(to, load<F64s>(to) + groups);
    }
  }

  /// The groups of several threads in all rows. @param thread  the first of them.
  CONVTRACE_INLINE void add_column(const std::byte* data, uint32_t thread) {
    WideFloats sums[kColumnVectors], l1s[kColumnVectors], squares[kColumnVectors];
    for (uint32_t i = 0; i < kColumnVectors; ++i)
      add_vector(data + i * kVectorBytes, sums[i], l1s[i], squares[i]);
    put(sum_ + thread, sums);
    put(l1_ + thread, l1s);
    put(squares_ + thread, squares);
  }

  CONVTRACE_INLINE static void add_vector(const std::byte* data, WideFloats& sums, WideFloats& l1s,
                                          WideFloats& squares) {
    Words words[kChunkGroups];
    for (uint32_t row = 0; row < kChunkGroups; ++row)
      words[row] = load<Words>(data + row * kRowBytes);
    Floats sum[kParts], l1[kParts], runs[kRuns][kParts];
    for (uint32_t part = 0; part < kParts; ++part) {
      Floats x[kChunkGroups], a[kChunkGroups];
      for (uint32_t i = 0; i < kChunkGroups; ++i) {
        x[i] = value_of(words[i], part);
        a[i] = magnitudes(x[i]);
      }
      sum[part] = (x[0] + x[1]) + (x[2] + x[3]);
      l1[part] = (a[0] + a[1]) + (a[2] + a[3]);
      for (uint32_t i = 0; i < kChunkGroups; ++i) {
        Floats& run = runs[i / kSquares][part];
        run = i % kSquares == 0 ? x[i] * x[i] : fma_lanes(x[i], x[i], run);
      }
    }
    sums = widen(tree(sum));
    l1s = widen(tree(l1));
    squares = squares_of(runs);
  }

  /// @return sums of the squares of words: in f32, or of f16 in f64.
  CONVTRACE_INLINE static WideFloats squares_of(const Floats (&runs)[kRuns][kParts]) {
    if constexpr (kRuns == 1) {
      return widen(tree(runs[0]));
    } else {
      static_assert(kRuns == 2 && kParts == 2);
      const WideFloats a = widen(runs[0][0]), b = widen(runs[0][1]);
      const WideFloats c = widen(runs[1][0]), d = widen(runs[1][1]);
      return {{(a.half[0] + b.half[0]) + (c.half[0] + d.half[0]),
               (a.half[1] + b.half[1]) + (c.half[1] + d.half[1])}};
    }
  }

  alignas(kVectorBytes) double sum_[kThreads] = {};
  alignas(kVectorBytes) double l1_[kThreads] = {};
  alignas(kVectorBytes) double squares_[kThreads] = {};
};

}  // namespace
}  // namespace convtrace::stats

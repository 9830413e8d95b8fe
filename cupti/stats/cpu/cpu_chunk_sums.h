// Part of cpu_tile_impl.h: sums of dense elements of 8 and 16 bits, a vector at a time: of floats as
// chunk_sums.h has them, of integers in any order.
#pragma once

#include <cstring>

#include "cupti/stats/cpu/cpu_sums.h"
#include "cupti/stats/cpu/simd.h"
#include "cupti/stats/thread/accumulator.h"

namespace convtrace::stats {
namespace {

constexpr uint32_t kChunkBytes = kChunkGroups * kRowBytes;

template <DType D>
requires(kHasChunkSums<D>) class TileSums<D> {
 public:
  explicit TileSums(Shift<D> /*none*/) {}

  /// @param usual  whether all elements are finite and in the range of ChunkRange, or 0.
  void add_block(const std::byte* data, uint32_t bytes, bool usual) {
    for (; bytes >= kChunkBytes; bytes -= kChunkBytes, data += kChunkBytes)
      add_chunk(data, kRowBytes, usual);
    if (bytes == 0) return;
    alignas(kVectorBytes) std::byte padded[kChunkBytes];
    const uint32_t columns =
        bytes < kRowBytes ? (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes : kRowBytes;
    for (uint32_t row = 0; row < kChunkGroups; ++row) {
      const uint32_t part = bytes < columns ? bytes : columns;
      std::memcpy(padded + row * kRowBytes, data + row * kRowBytes, part);
      std::memset(padded + row * kRowBytes + part, 0, columns - part);
      bytes -= part;
    }
    add_chunk(padded, columns, usual);
  }

  void put_into(ThreadTotals& totals) const {
    ChunkSums<D>::put(combine_words(sum_), combine_words(l1_), combine_words(squares_), totals);
  }

 private:
  using E = Element<D>;
  using Bits = typename E::Bits;
  using Words = Vector<uint32_t>;
  using Floats = Vector<float>;
  static constexpr uint32_t kWords = ChunkSums<D>::kWords;
  static constexpr uint32_t kParts = ChunkSums<D>::kParts;
  static constexpr uint32_t kSquares = ChunkSums<D>::kSquares;
  static constexpr uint32_t kVectorGroups = kVectorBytes / kGroupBytes;

  /// @param columns  bytes of each row; the rest is zero.
  void add_chunk(const std::byte* data, uint32_t columns, bool usual) {
    for (uint32_t at = 0; at < columns; at += kVectorBytes) {
      const uint32_t thread = at / kGroupBytes;
      if (usual || usual_column(data + at)) {
        add_column(data + at, thread * kWords);
      } else {
        for (uint32_t i = 0; i < kVectorGroups; ++i) add_group(data + at, thread, i);
      }
    }
  }

  static bool usual_column(const std::byte* data) {
    for (uint32_t i = 0; i < kVectorGroups; ++i) {
      uint32_t largest = 0;
      for (uint32_t row = 0; row < kChunkGroups; ++row) {
        for (uint32_t e = 0; e < kPerGroup<D>; ++e) {
          const auto bits = load<Bits>(data + row * kRowBytes + i * kGroupBytes + e * sizeof(Bits));
          const uint32_t magnitude = E::magnitude(bits);
          largest = magnitude > largest ? magnitude : largest;
        }
      }
      if (largest > E::kMaxFinite || !ChunkRange<D>::holds(largest)) return false;
    }
    return true;
  }

  /// The chunk of one thread. @param thread  of the column's first group.
  void add_group(const std::byte* data, uint32_t thread, uint32_t group) {
    Chunk chunk;
    for (uint32_t row = 0; row < kChunkGroups; ++row)
      std::memcpy(&chunk.group[row], data + row * kRowBytes + group * kGroupBytes, kGroupBytes);
    ChunkSums<D> sums;
    const auto exchange = [&] {
      for (uint32_t word = 0; word < kWords; ++word) {
        const uint32_t lane = (thread + group) * kWords + word;
        double of[3] = {sum_[lane], l1_[lane], squares_[lane]};
        sums.exchange(word, of);
        sum_[lane] = of[0], l1_[lane] = of[1], squares_[lane] = of[2];
      }
    };
    exchange();
    sums.add_any(finite_part<D>(chunk), UINT32_MAX);
    exchange();
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

  /// Adds one f32 a word to consecutive accumulators.
  CONVTRACE_INLINE static void put(double* to, Floats value) {
    F32s halves[2];
    std::memcpy(halves, &value, sizeof halves);
    for (uint32_t i = 0; i < 2; ++i)
      store(to + i * kWide, load<F64s>(to + i * kWide) + widen(halves[i]));
  }

  /// The groups of one vector in all rows. @param lane  of the first word.
  CONVTRACE_INLINE void add_column(const std::byte* data, uint32_t lane) {
    Words words[kChunkGroups];
    for (uint32_t row = 0; row < kChunkGroups; ++row)
      words[row] = load<Words>(data + row * kRowBytes);
    Floats sum[kParts], l1[kParts], squares[kChunkGroups / kSquares][kParts];
    for (uint32_t part = 0; part < kParts; ++part) {
      Floats x[kChunkGroups], a[kChunkGroups];
      for (uint32_t i = 0; i < kChunkGroups; ++i) {
        x[i] = value_of(words[i], part);
        a[i] = magnitudes(x[i]);
      }
      sum[part] = (x[0] + x[1]) + (x[2] + x[3]);
      l1[part] = (a[0] + a[1]) + (a[2] + a[3]);
      for (uint32_t i = 0; i < kChunkGroups; ++i) {
        Floats& of = squares[i / kSquares][part];
        of = i % kSquares == 0 ? x[i] * x[i] : fma_lanes(x[i], x[i], of);
      }
    }
    put(sum_ + lane, tree(sum));
    put(l1_ + lane, tree(l1));
    if constexpr (kSquares == kChunkGroups) {
      put(squares_ + lane, tree(squares[0]));
    } else {
      for (uint32_t part = 0; part < kParts; ++part) {
        for (const auto& of : squares) put(squares_ + lane, of[part]);
      }
    }
  }

  static constexpr uint32_t kLaneCount = kThreads * kWords;
  alignas(kVectorBytes) double sum_[kLaneCount] = {};
  alignas(kVectorBytes) double l1_[kLaneCount] = {};
  alignas(kVectorBytes) double squares_[kLaneCount] = {};
};

template <DType D>
requires(kHasExactSums<D>) class TileSums<D> {
 public:
  explicit TileSums(Shift<D> /*none*/) {}

  void add_block(const std::byte* data, uint32_t bytes, bool /*usual*/) {
    const uint32_t whole = bytes / kVectorBytes * kVectorBytes;
    for (uint32_t at = 0; at < whole; at += kRunBytes)
      add_run(data + at, whole - at < kRunBytes ? whole - at : kRunBytes);
    for (uint32_t at = whole; at < bytes; at += sizeof(Bits)) rest_.add(load<Bits>(data + at));
  }

  void put_into(ThreadTotals& totals) const {
    rest_.put_into(totals);
    totals.int_sum.low += sum_;
    totals.int_l1.low += static_cast<int64_t>(l1_);
    totals.int_squares += squares_;
  }

 private:
  using E = Element<D>;
  using Bits = typename E::Bits;
  using Elements = Vector<std::make_signed_t<Bits>>;
  using Words = Vector<uint32_t>;
  /// So many vectors add up in lanes of twice an element's size.
  static constexpr uint32_t kRunBytes = 128 * kVectorBytes;

  /// Whole vectors, at most kRunBytes. l1 as ExactSums has it.
  void add_run(const std::byte* data, uint32_t bytes) {
    if constexpr (sizeof(Bits) == 1) add_bytes(data, bytes);
    if constexpr (sizeof(Bits) == 2) add_halves(data, bytes);
  }

  void add_bytes(const std::byte* data, uint32_t bytes) {
    using Halves = Vector<uint16_t>;
    using SignedHalves = Vector<int16_t>;
    Halves sum{}, l1{};
    Words squares{};
    for (uint32_t at = 0; at < bytes; at += kVectorBytes) {
      auto elements = load<Elements>(data + at);
      if constexpr (D == DType::kBool) elements = (elements != 0) & 1;
      const auto halves = as<Halves>(elements);
      Halves even = halves & 0xFF, odd = halves >> 8;
      if constexpr (E::kSigned) {
        even = as<Halves>(as<SignedHalves>(halves << 8) >> 8);
        odd = as<Halves>(as<SignedHalves>(halves) >> 8);
        const auto magnitudes = as<Halves>(elements < 0 ? ~elements : elements);
        l1 += (magnitudes & 0xFF) + (magnitudes >> 8);
      }
      sum += even + odd;
      squares += squares_of_pairs(even) + squares_of_pairs(odd);
    }
    for (uint32_t i = 0; i < kVectorBytes / 2; ++i) {
      sum_ += E::kSigned ? int64_t{static_cast<int16_t>(sum[i])} : int64_t{sum[i]};
      l1_ += E::kSigned ? l1[i] : sum[i];
    }
    for (uint32_t i = 0; i < kVectorBytes / 4; ++i) squares_ += squares[i];
  }

  void add_halves(const std::byte* data, uint32_t bytes) {
    using SignedWords = Vector<int32_t>;
    SignedWords sum{}, l1{};
    U64s squares{};
    for (uint32_t at = 0; at < bytes; at += kVectorBytes) {
      const auto elements = load<Elements>(data + at);
      auto magnitudes = as<Words>(elements), inverted = magnitudes;
      if constexpr (E::kSigned) {
        const auto words = as<SignedWords>(elements);
        sum += ((words << 16) >> 16) + (words >> 16);
        inverted = as<Words>(elements < 0 ? ~elements : elements);
        magnitudes = as<Words>(elements < 0 ? -elements : elements);
      }
      l1 += as<SignedWords>((inverted & 0xFFFF) + (inverted >> 16));
      const Words even = magnitudes & 0xFFFF, odd = magnitudes >> 16;
      for (const Words words : {even, odd}) {
        const auto low = as<U64s>(words), high = as<U64s>(words) >> 32;
        squares += mul_low_halves(low, low) + mul_low_halves(high, high);
      }
    }
    for (uint32_t i = 0; i < kVectorBytes / 4; ++i) {
      sum_ += E::kSigned ? sum[i] : l1[i];
      l1_ += static_cast<uint32_t>(l1[i]);
    }
    squares_ += sum_lanes(squares);
  }

  ExactSums<D> rest_;
  int64_t sum_ = 0;
  uint64_t l1_ = 0;
  uint64_t squares_ = 0;
};

}  // namespace
}  // namespace convtrace::stats

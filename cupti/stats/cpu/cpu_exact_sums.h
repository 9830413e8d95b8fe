// Part of cpu_tile_impl.h: sums of dense integers of 8 and 16 bits, a vector at a time, in any order.
#pragma once

#include "cupti/stats/cpu/cpu_sums.h"
#include "cupti/stats/cpu/simd.h"
#include "cupti/stats/cpu/simd_sums.h"
#include "cupti/stats/thread/accumulator.h"

namespace convtrace::stats {
namespace {

template <DType D>
requires(kHasExactSums<D>) class TileSums<D> {
 public:
  TileSums(Shift<D> /*none*/, uint64_t /*bytes*/) {}

  void add_block(const std::byte* data, uint32_t bytes, bool /*usual*/) {
    const uint32_t whole = bytes / kVectorBytes * kVectorBytes;
    for (uint32_t at = 0; at < whole; at += kRunBytes)
      add_run(data + at, whole - at < kRunBytes ? whole - at : kRunBytes);
    for (uint32_t at = whole; at < bytes; at += sizeof(Bits)) {
      const auto bits = load<Bits>(data + at);
      const int64_t value = E::value(bits);
      sum_ += value;
      l1_ += E::magnitude(bits);
      squares_ += static_cast<uint64_t>(value * value);
    }
  }

  void put_into(ThreadTotals& totals) const {
    totals.int_sum.low = sum_;
    totals.int_l1.low = static_cast<int64_t>(l1_);
    totals.int_squares = squares_;
  }

 private:
  using E = Element<D>;
  using Bits = typename E::Bits;
  using Words = Vector<uint32_t>;
  using Elements = Vector<std::make_signed_t<Bits>>;
  /// The sum of 128 vectors fits lanes of twice an element's size.
  static constexpr uint32_t kRunBytes = 128 * kVectorBytes;

  /// Whole vectors, at most kRunBytes.
  void add_run(const std::byte* data, uint32_t bytes) {
    if constexpr (sizeof(Bits) == 1) add_bytes(data, bytes);
    if constexpr (sizeof(Bits) == 2) add_halves(data, bytes);
  }

  CONVTRACE_INLINE static Elements elements_at(const std::byte* at) {
    const auto elements = load<Elements>(at);
    if constexpr (D == DType::kBool) return (elements != 0) & 1;
    return elements;
  }

#if defined(__AVX512VNNI__)
  /// Products of unsigned with signed bytes, added up four by four. For squares the bytes are taken
  /// once as they are and once 128 more or less.
  void add_bytes(const std::byte* data, uint32_t bytes) {
    const Elements ones = Elements{} + 1;
    Words sum{}, l1{}, products{};
    for (uint32_t at = 0; at < bytes; at += kVectorBytes) {
      const Elements elements = elements_at(data + at);
      const Elements other = elements ^ INT8_MIN;
      if constexpr (E::kSigned) {
        sum = dot_bytes(sum, ones, elements);
        l1 = dot_bytes(l1, magnitudes_of(elements), ones);
        products = dot_bytes(products, other, elements);
      } else {
        sum = dot_bytes(sum, elements, ones);
        products = dot_bytes(products, elements, other);
      }
    }
    const int64_t run = sum_of_signed(sum);
    sum_ += run;
    l1_ += static_cast<uint64_t>(E::kSigned ? sum_of_signed(l1) : run);
    squares_ += static_cast<uint64_t>(sum_of_signed(products) + (E::kSigned ? -128 : 128) * run);
  }

  static int64_t sum_of_signed(Words words) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < kVectorBytes / 4; ++i) sum += static_cast<int32_t>(words[i]);
    return sum;
  }
#else
  void add_bytes(const std::byte* data, uint32_t bytes) {
    using Halves = Vector<uint16_t>;
    Halves sum{}, l1{};
    Words squares{};
    for (uint32_t at = 0; at < bytes; at += kVectorBytes) {
      const Elements elements = elements_at(data + at);
      if constexpr (E::kSigned) sum += sums_of_pairs(elements);
      const auto magnitudes = as<Halves>(E::kSigned ? magnitudes_of(elements) : elements);
      const Halves even = magnitudes & 0xFF, odd = magnitudes >> 8;
      l1 += even + odd;
      squares += squares_of_pairs(even) + squares_of_pairs(odd);
    }
    for (uint32_t i = 0; i < kVectorBytes / 2; ++i) {
      sum_ += E::kSigned ? int64_t{static_cast<int16_t>(sum[i])} : int64_t{l1[i]};
      l1_ += l1[i];
    }
    for (uint32_t i = 0; i < kVectorBytes / 4; ++i) squares_ += squares[i];
  }
#endif

  void add_halves(const std::byte* data, uint32_t bytes) {
    using SignedWords = Vector<int32_t>;
    SignedWords sum{}, l1{};
    U64s squares{};
    for (uint32_t at = 0; at < bytes; at += kVectorBytes) {
      const auto elements = load<Elements>(data + at);
      auto magnitudes = as<Words>(elements);
      if constexpr (E::kSigned) {
        const auto words = as<SignedWords>(elements);
        sum += ((words << 16) >> 16) + (words >> 16);
        magnitudes = as<Words>(elements < 0 ? -elements : elements);
      }
      const Words even = magnitudes & 0xFFFF, odd = magnitudes >> 16;
      l1 += as<SignedWords>(even + odd);
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

  int64_t sum_ = 0;
  uint64_t l1_ = 0;
  uint64_t squares_ = 0;
};

}  // namespace
}  // namespace convtrace::stats

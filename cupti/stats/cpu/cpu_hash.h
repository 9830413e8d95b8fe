// Part of cpu_tile_impl.h: the hash of dense bytes, a vector at a time.
#pragma once

#include <cstring>
#include <iterator>

#include "cupti/stats/cpu/simd.h"
#include "cupti/stats/tile/hash.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {
namespace {

/// Bytes that are walked at a time; they stay in the first-level cache.
constexpr uint32_t kBlockBytes = 8 * kRowBytes;

#if defined(__AVX512IFMA__)
// Products of 52 bits, of which one instruction adds up the lower or the upper 52.
constexpr uint32_t kKeyShifts[] = {0, 52, 64};
#else
// Products of a word have 54 bits, so 1024 of them add up in 64.
constexpr uint32_t kKeyShifts[] = {0, 22, 43, 64};
#endif
constexpr uint32_t kKeyParts = std::size(kKeyShifts) - 1;

/// The powers of the base that the words of a row are multiplied by, cut into parts, in the order in
/// which a vector meets them.
struct RowKeys {
  alignas(kVectorBytes) uint64_t even[kKeyParts][kRowWords / 2] = {};
  alignas(kVectorBytes) uint64_t odd[kKeyParts][kRowWords / 2] = {};

  constexpr RowKeys() {
    uint64_t power = 1;
    for (uint32_t word = 0; word < kRowWords; ++word) {
      for (uint32_t part = 0; part < kKeyParts; ++part) {
        const uint32_t begin = kKeyShifts[part], end = kKeyShifts[part + 1];
        const uint64_t bits = power << (64 - end) >> (64 - end + begin);
        (word % 2 == 0 ? even : odd)[part][word / 2] = bits;
      }
      power = residue_product(power, kHashBase);
    }
  }
};
constexpr RowKeys kRowKeys;
constexpr uint64_t kRowFactor = hash_factor(kRowWords);

/// Sums of products of words and parts of their powers; what each counts is in kShifts.
struct RowSums {
  U64s of[3] = {};

#if defined(__AVX512IFMA__)
  static constexpr uint32_t kShifts[] = {0, 52, 52};
  CONVTRACE_INLINE void add(U64s words, const uint64_t (&keys)[kKeyParts][kRowWords / 2],
                            uint32_t at) {
    const auto word = as<__m512i>(words);
    const auto low = load<__m512i>(keys[0] + at), high = load<__m512i>(keys[1] + at);
    of[0] = as<U64s>(_mm512_madd52lo_epu64(as<__m512i>(of[0]), word, low));
    of[1] = as<U64s>(_mm512_madd52hi_epu64(as<__m512i>(of[1]), word, low));
    of[2] = as<U64s>(_mm512_madd52lo_epu64(as<__m512i>(of[2]), word, high));
  }
#else
  static constexpr const uint32_t (&kShifts)[4] = kKeyShifts;
  CONVTRACE_INLINE void add(U64s words, const uint64_t (&keys)[kKeyParts][kRowWords / 2],
                            uint32_t at) {
    for (uint32_t part = 0; part < kKeyParts; ++part)
      of[part] += mul_low_halves(words, load<U64s>(keys[part] + at));
  }
#endif
};

CONVTRACE_INLINE uint64_t total(const RowSums& even, const RowSums& odd) {
  UInt128 total = 0;
  for (uint32_t i = 0; i < 3; ++i)
    total += UInt128{sum_lanes(even.of[i] + odd.of[i])} << RowSums::kShifts[i];
  return residue(total);
}

/// @param words  a multiple of those of a vector. @return the sum of words times their powers.
CONVTRACE_INLINE uint64_t hash_words(const std::byte* row, uint32_t words) {
  RowSums even, odd;  // two, so that additions do not wait for each other
  for (uint32_t at = 0; at < words / 2; at += kWide) {
    const auto pairs = load<U64s>(row + at * 8);
    even.add(pairs & 0xFFFFFFFF, kRowKeys.even, at);
    odd.add(pairs >> 32, kRowKeys.odd, at);
  }
  return total(even, odd);
}

/// Prefetches the row at the same place in the next block while this one is hashed. Without it,
/// nothing is read from memory during a block, and every row of the next one stalls. The data goes
/// to the second-level cache: the first one's few miss buffers would hold the loop up.
CONVTRACE_INLINE void prefetch_next_block(const std::byte* row) {
  constexpr uint32_t kLineBytes = 64;
  for (uint32_t at = 0; at < kRowBytes; at += kLineBytes) {
    __builtin_prefetch(row + kBlockBytes + at, 0, 2);
  }
}

/// The sum of the words of consecutive blocks times their powers: of the hash all but the ones.
class BlockHash {
 public:
  void add(const std::byte* data, uint32_t bytes) {
    for (; bytes >= kRowBytes; bytes -= kRowBytes, data += kRowBytes) {
      prefetch_next_block(data);
      add_row(hash_words(data, kRowWords));
    }
    if (bytes == 0) return;
    std::byte padded[kRowBytes];  // zeros add nothing
    const uint32_t end = (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
    std::memset(padded + end - kVectorBytes, 0, kVectorBytes);
    std::memcpy(padded, data, bytes);
    add_row(hash_words(padded, end / kHashWordBytes));
  }

  [[nodiscard]] uint64_t sum() const { return sum_; }

 private:
  void add_row(uint64_t row) {
    sum_ = residue_sum(sum_, residue_product(row, factor_));
    factor_ = residue_product(factor_, kRowFactor);
  }

  uint64_t sum_ = 0;
  uint64_t factor_ = 1;
};

}  // namespace
}  // namespace convtrace::stats

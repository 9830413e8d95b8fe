// Part of cpu_tile_impl.h: the hash of dense bytes, a vector at a time.
#pragma once

#include <cstring>
#include <iterator>

#include "cupti/stats/cpu/simd.h"
#include "cupti/stats/cpu/simd_sums.h"
#include "cupti/stats/tile/hash.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {
namespace {

/// Bytes that are walked at a time; they stay in the first-level cache.
constexpr uint32_t kBlockBytes = 8 * kRowBytes;
constexpr uint32_t kLineBytes = 64;

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

/// Rows that share the loaded powers; limited by the number of registers.
constexpr uint32_t kRowsAtOnce = kVectorBytes == 64 ? 2 : 1;

/// Parts of the powers of a vector's words.
struct VectorKeys {
  U64s of[kKeyParts];

  CONVTRACE_INLINE VectorKeys(const uint64_t (&keys)[kKeyParts][kRowWords / 2], uint32_t at) {
    for (uint32_t part = 0; part < kKeyParts; ++part) {
      auto loaded = load<U64s>(keys[part] + at);
      if (kRowsAtOnce > 1) keep_in_register(loaded);
      of[part] = loaded;
    }
  }
};

/// Sums of products of words and parts of their powers; what each counts is in kShifts.
struct RowSums {
  U64s of[3] = {};

#if defined(__AVX512IFMA__)
  static constexpr uint32_t kShifts[] = {0, 52, 52};
  CONVTRACE_INLINE static U64s lower(U64s pairs) { return pairs & 0xFFFFFFFF; }
  CONVTRACE_INLINE void add(U64s words, const VectorKeys& keys) {
    const auto word = as<__m512i>(words);
    const auto low = as<__m512i>(keys.of[0]), high = as<__m512i>(keys.of[1]);
    of[0] = as<U64s>(_mm512_madd52lo_epu64(as<__m512i>(of[0]), word, low));
    of[1] = as<U64s>(_mm512_madd52hi_epu64(as<__m512i>(of[1]), word, low));
    of[2] = as<U64s>(_mm512_madd52lo_epu64(as<__m512i>(of[2]), word, high));
  }
#else
  static constexpr const uint32_t (&kShifts)[4] = kKeyShifts;
  CONVTRACE_INLINE static U64s lower(U64s pairs) { return pairs; }  // products ignore upper halves
  CONVTRACE_INLINE void add(U64s words, const VectorKeys& keys) {
    for (uint32_t part = 0; part < kKeyParts; ++part)
      of[part] += mul_low_halves(words, keys.of[part]);
  }
#endif

  CONVTRACE_INLINE void add(const RowSums& other) {
    for (uint32_t i = 0; i < 3; ++i) of[i] += other.of[i];
  }
};

/// Prefetches what lies at the same place in the next block while this one is hashed. Without it,
/// nothing is read from memory during a block, and every row of the next one stalls. The data goes
/// to the second-level cache: the first one's few miss buffers would hold the loop up.
CONVTRACE_INLINE void prefetch_next_block(const std::byte* at) {
  __builtin_prefetch(at + kBlockBytes, 0, 2);
}

/// @param words  of each row, a multiple of those of a vector. @tparam Prefetch  of whole rows.
template <uint32_t Rows, bool Prefetch>
CONVTRACE_INLINE void sum_rows(const std::byte* rows, uint32_t words, RowSums* sums) {
  RowSums even[Rows], odd[Rows];  // two, so that additions do not wait for each other
  constexpr uint32_t kStep = (Prefetch ? kLineBytes : kVectorBytes) / 8;
  for (uint32_t line = 0; line < words / 2; line += kStep) {
    for (uint32_t i = 0; Prefetch && i < Rows; ++i)
      prefetch_next_block(rows + i * kRowBytes + line * 8);
    for (uint32_t at = line; at < line + kStep; at += kWide) {
      const VectorKeys even_keys(kRowKeys.even, at), odd_keys(kRowKeys.odd, at);
      for (uint32_t i = 0; i < Rows; ++i) {
        auto pairs = load<U64s>(rows + i * kRowBytes + at * 8);
        keep_in_register(pairs);
        even[i].add(RowSums::lower(pairs), even_keys);
        odd[i].add(pairs >> 32, odd_keys);
      }
    }
  }
  for (uint32_t i = 0; i < Rows; ++i) {
    even[i].add(odd[i]);
    sums[i] = even[i];
  }
}

/// @return sums of words times their powers.
CONVTRACE_INLINE uint64_t total(const uint64_t (&sums)[3]) {
  UInt128 total = 0;
  for (uint32_t i = 0; i < 3; ++i) total += UInt128{sums[i]} << RowSums::kShifts[i];
  return residue(total);
}

/// The sum of the words of consecutive blocks times their powers: of the hash all but the ones.
class BlockHash {
 public:
  void add(const std::byte* data, uint32_t bytes) {
    constexpr uint32_t kManyBytes = kWide * kRowBytes;
    for (; bytes >= kManyBytes; bytes -= kManyBytes, data += kManyBytes) add_many(data);
    for (; bytes >= kRowBytes; bytes -= kRowBytes, data += kRowBytes) add_one(data, kRowWords);
    if (bytes == 0) return;
    std::byte padded[kRowBytes];  // zeros add nothing
    const uint32_t end = (bytes + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
    std::memset(padded + end - kVectorBytes, 0, kVectorBytes);
    std::memcpy(padded, data, bytes);
    add_one(padded, end / kHashWordBytes);
  }

  [[nodiscard]] uint64_t sum() const { return sum_; }

 private:
  /// As many rows as a vector has lanes, whose sums' lanes then add up for all rows together.
  void add_many(const std::byte* data) {
    RowSums rows[kWide];
    for (uint32_t row = 0; row < kWide; row += kRowsAtOnce, data += kRowsAtOnce * kRowBytes)
      sum_rows<kRowsAtOnce, true>(data, kRowWords, rows + row);
    uint64_t sums[3][kWide];
    for (uint32_t i = 0; i < 3; ++i) {
      U64s of_rows[kWide];
      for (uint32_t row = 0; row < kWide; ++row) of_rows[row] = rows[row].of[i];
      store(sums[i], sums_of_each(of_rows));
    }
    for (uint32_t row = 0; row < kWide; ++row)
      add_row(total({sums[0][row], sums[1][row], sums[2][row]}));
  }

  /// A row, or a part of one.
  void add_one(const std::byte* data, uint32_t words) {
    RowSums row;
    sum_rows<1, false>(data, words, &row);
    add_row(total({sum_lanes(row.of[0]), sum_lanes(row.of[1]), sum_lanes(row.of[2])}));
  }

  void add_row(uint64_t row) {
    sum_ = residue_sum(sum_, residue_product(row, factor_));
    factor_ = residue_product(factor_, kRowFactor);
  }

  uint64_t sum_ = 0;
  uint64_t factor_ = 1;
};

}  // namespace
}  // namespace convtrace::stats

// Part of cpu_tile_impl.h: the hash of dense bytes, a vector at a time.
#pragma once

#include <cstring>

#include "cupti/stats/cpu/simd.h"
#include "cupti/stats/tile/hash.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {
namespace {

/// Bytes that are walked at a time; they stay in the first-level cache.
constexpr uint32_t kBlockBytes = 8 * kRowBytes;

/// Word keys in the order in which a vector of 8 words meets them: even words, then odd words, and
/// the upper halves of both where a multiplication can reach them.
struct VectorKeys {
  alignas(kVectorBytes) uint64_t even[kBlockWords / 2] = {};
  alignas(kVectorBytes) uint64_t odd[kBlockWords / 2] = {};
  alignas(kVectorBytes) uint64_t even_high[kBlockWords / 2] = {};
  alignas(kVectorBytes) uint64_t odd_high[kBlockWords / 2] = {};

  constexpr VectorKeys() {
    for (uint32_t i = 0; i < kBlockWords / 2; ++i) {
      even[i] = word_key(2 * i);
      odd[i] = word_key(2 * i + 1);
      even_high[i] = even[i] >> 32;
      odd_high[i] = odd[i] >> 32;
    }
  }
};
constexpr VectorKeys kVectorKeys;

CONVTRACE_INLINE uint64_t hash_row(const std::byte* row) {
  U64s low{}, high{};
  for (uint32_t i = 0; i < kBlockWords / 2; i += kWide) {
    const auto words = load<Vector<uint32_t>>(row + i * 8);
    const auto even = as<U64s>(words ^ (words >> 16));
    const auto odd = even >> 32;
    low += mul_low_halves(even, load<U64s>(kVectorKeys.even + i));
    low += mul_low_halves(odd, load<U64s>(kVectorKeys.odd + i));
    high += mul_low_halves(even, load<U64s>(kVectorKeys.even_high + i));
    high += mul_low_halves(odd, load<U64s>(kVectorKeys.odd_high + i));
  }
  const U64s sums = low + (high << 32);
  uint64_t total = 0;
  for (uint32_t i = 0; i < kWide; ++i) total += sums[i];
  return total;
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

uint64_t hash_bytes(const std::byte* data, uint32_t bytes, uint64_t first_row) {
  uint64_t hash = 0;
  uint64_t row = first_row;
  for (; bytes >= kRowBytes; bytes -= kRowBytes, data += kRowBytes) {
    prefetch_next_block(data);
    hash += hash_row(data) * block_key(row++);
  }
  if (bytes > 0) {
    std::byte padded[kRowBytes] = {};  // zeros add nothing
    std::memcpy(padded, data, bytes);
    hash += hash_row(padded) * block_key(row);
  }
  return hash;
}

}  // namespace
}  // namespace convtrace::stats

#pragma once
/// @file hash.h
/// A 64-bit hash of the logical byte stream that any number of threads can compute in any order.
///
/// The stream is read as 32-bit little-endian words, zero-padded at its end. The hash is
///
///     sum over words of fold(word) * word_key(p mod 256) * block_key(p div 256)  +  length_key
///
/// mod 2^64, p being the word's position. Keys are odd, so a change of one word always changes the
/// sum; keys differ in their low bits, so exchanging two words of a row does too. It is a
/// multilinear hash: other changes collide with probability 2^-49 at worst (differences in the
/// upper half of words alone, which fold brings down to bit 15) and 2^-64 typically. It is no
/// defence against somebody who wants a collision.
///
/// Why a product of keys: 256 words are one row of a tile, so a device thread keeps its four keys
/// in registers and a CPU keeps all of them in cache; the factor of the row is applied once to the
/// sum. A sum of keys would let equal changes of two rows cancel.
///
/// Source:   L. Carter, M. Wegman, "Universal classes of hash functions" (1979); D. Lemire, O.
///           Kaser, "Strongly universal string hashing is fast" (2014); finalizer: splitmix64 (S.
///           Vigna, 2015).

#include <cstdint>

#include "cupti/stats/tile/arith.h"

namespace convtrace::stats {

inline constexpr uint32_t kBlockWords = 256;

CONVTRACE_HD constexpr uint64_t splitmix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

CONVTRACE_HD constexpr uint64_t word_key(uint32_t position) { return splitmix(position) | 1; }
CONVTRACE_HD constexpr uint64_t block_key(uint64_t block) {
  return splitmix(block + 0x1000000000000) | 1;
}
CONVTRACE_HD constexpr uint64_t length_key(uint64_t bytes) {
  return splitmix(bytes + 0x2000000000000);
}

/// Brings the upper half of a word down, where multiplication spreads it over the whole hash.
CONVTRACE_HD constexpr uint32_t fold(uint32_t word) { return word ^ (word >> 16); }

/// The contribution of one word: the definition that all faster forms must equal.
CONVTRACE_HD constexpr uint64_t hash_word(uint32_t word, uint64_t position) {
  return fold(word) * word_key(static_cast<uint32_t>(position % kBlockWords)) *
         block_key(position / kBlockWords);
}

}  // namespace convtrace::stats

#pragma once
/// @file hash.h
/// The 64-bit hash of a value's logical bytes, version 2 (FORMAT.md, section 6.10): a polynomial
/// modulo a prime, so that any number of threads can compute it in any order, and hashes of parts
/// give that of the whole.
///
/// The bytes are cut into words of 4, little-endian; a one is put above each word, so that a word
/// of r bytes with the number w counts as w + 256^r. Word i is multiplied by y^i:
///
///     hash = sum of (word i + 256^r) * y^i  mod p,   p = 2^64 - 59
///
/// A changed word always changes the sum, since no word reaches p; an exchange of two unequal words
/// does too, since y generates all residues. Other changes collide with probability 2^-64
/// typically, and for n words of any content with n / p at worst over the choice of y. It is no
/// defence against intended collisions.
///
/// Why a prime: modulo 2^64 the low bits of a polynomial hardly depend on positions. Why this y:
/// the smallest generator from 2^64 / golden ratio on, so that changes of two neighbouring words by
/// less than about 2^31 cannot cancel.
///
/// Source:   R. Karp, M. Rabin, "Efficient randomized pattern-matching algorithms" (1987).

#include <cstdint>

#include "cupti/stats/tile/arith.h"

namespace convtrace::stats {

inline constexpr uint64_t kHashPrimeBelow = 59;
inline constexpr uint64_t kHashPrime = 0 - kHashPrimeBelow;
inline constexpr uint64_t kHashBase = 0x9E3779B97F4A7C18;
inline constexpr uint32_t kHashWordBytes = 4;

// Residues: numbers below kHashPrime.

CONVTRACE_HD constexpr uint64_t residue(UInt128 x) {
  for (int i = 0; i < 2; ++i) {  // 2^64 is 59
    x = static_cast<uint64_t>(x) + (x >> 64) * kHashPrimeBelow;
  }
  const auto low = static_cast<uint64_t>(x);
  const uint64_t once = x >> 64 != 0 ? low + kHashPrimeBelow : low;
  return once >= kHashPrime ? once - kHashPrime : once;
}
CONVTRACE_HD constexpr uint64_t residue_sum(uint64_t a, uint64_t b) {
  return residue(UInt128{a} + b);
}
CONVTRACE_HD constexpr uint64_t residue_product(uint64_t a, uint64_t b) {
  return residue(UInt128{a} * b);
}

CONVTRACE_HD constexpr uint64_t residue_power(uint64_t base, uint64_t exponent) {
  uint64_t power = 1;
  while (exponent != 0) {
    if ((exponent & 1) != 0) power = residue_product(power, base);
    exponent >>= 1;
    if (exponent != 0) base = residue_product(base, base);
  }
  return power;
}

/// @return the factor of the hash of words that follow `words` others.
CONVTRACE_HD constexpr uint64_t hash_factor(uint64_t words) {
  return residue_power(kHashBase, words);
}

/// @return the hash of `count` parts of which all but the last have `bytes` bytes, a multiple of 4.
/// @param hash_of  of part i.
template <typename HashOf>
CONVTRACE_HD constexpr uint64_t concat_hashes(uint64_t bytes, uint32_t count, HashOf hash_of) {
  if (count == 1) return hash_of(0);
  const uint64_t factor = hash_factor(bytes / kHashWordBytes);
  uint64_t hash = 0;
  for (uint32_t i = count; i-- > 0;) hash = residue_sum(residue_product(hash, factor), hash_of(i));
  return hash;
}

/// @return the contribution of the terms 256^r for `bytes` bytes: the hash is this plus the sum over the
/// words.
constexpr uint64_t hash_ones(uint64_t bytes) {
  // n whole words contribute 2^32 (y^n - 1) / (y - 1).
  constexpr uint64_t kFactor =
      residue_product(uint64_t{1} << 32, residue_power(kHashBase - 1, kHashPrime - 2));
  const uint64_t behind = hash_factor(bytes / kHashWordBytes);
  const uint64_t whole = residue_product(residue_sum(behind, kHashPrime - 1), kFactor);
  const uint64_t rest = bytes % kHashWordBytes;
  return rest == 0 ? whole : residue_sum(whole, residue_product(behind, uint64_t{1} << 8 * rest));
}

}  // namespace convtrace::stats

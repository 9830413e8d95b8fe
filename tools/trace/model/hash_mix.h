#pragma once
/// @file hash_mix.h
/// Combines a few words into one hash, for the tables of the diff.

#include <cstdint>
#include <initializer_list>

namespace convtrace::diff {

/// splitmix64's finaliser after each word: full avalanche, so that dense ids spread over buckets.
[[nodiscard]] inline uint64_t mix_all(std::initializer_list<uint64_t> words) {
  uint64_t hash = 0;
  for (const uint64_t word : words) {
    uint64_t x = hash + 0x9E3779B97F4A7C15u + word;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    hash = x ^ (x >> 31);
  }
  return hash;
}

}  // namespace convtrace::diff

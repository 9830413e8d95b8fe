#pragma once
/// @file numbers.h
/// Random numbers that follow from what they are for: the same on every machine and in every order.

#include <cstdint>
#include <initializer_list>

namespace convtrace::simulate {

/// SplitMix64. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators".
constexpr uint64_t mixed(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

constexpr uint64_t seed_of(std::initializer_list<uint64_t> words) {
  uint64_t seed = 0;
  for (const uint64_t word : words) seed = mixed(seed ^ word);
  return seed;
}

class Random {
 public:
  explicit constexpr Random(uint64_t seed) : state_(seed) {}

  constexpr uint64_t next() { return mixed(state_++); }
  /// @return 0 to `count` - 1.
  constexpr uint64_t below(uint64_t count) { return next() % count; }
  /// @return -1 to 1, in steps of 2^-23.
  constexpr float unit() {
    return static_cast<float>(static_cast<int64_t>(next() >> 40) - (1 << 23)) * 0x1p-23F;
  }

 private:
  uint64_t state_;
};

}  // namespace convtrace::simulate

#pragma once
/// @file noisy_runs.h
/// Runs of made values that differ by so much, for tests of what counts as rounding.

#include <cstdint>
#include <random>
#include <vector>

#include "tests/unit/tools/diff/run.h"

namespace convtrace::test {

inline constexpr double kF32 = 0x1p-24, kBF16 = 0x1p-8;

/// Values of size 1, and as many that are off by `error` of it in no particular direction.
inline std::vector<float> noisy(double error, uint32_t seed = 1, size_t size = 1024) {
  std::mt19937 random(7);
  std::mt19937 other(seed);
  std::normal_distribution<double> normal, noise;  // one draws for two calls
  std::vector<float> values(size);
  for (float& v : values) {
    const double value = normal(random);
    v = static_cast<float>(value + error * noise(other));
  }
  return values;
}

inline Item value(uint32_t step, const char* scope, const char* slot, double error,
                  uint64_t storage = 0) {
  return {.step = step, .scope = scope, .slot = slot, .values = noisy(error), .storage = storage};
}

inline Item taken(uint32_t step, const char* scope, double error, uint64_t storage) {
  Item item = value(step, scope, "input:0", error, storage);
  item.capture = format::Capture::kHash;
  return item;
}

/// a gives its output to b, and b makes another of it: both off by so much.
inline Run chain(double first, double second) {
  Run run;
  run.add(value(0, "a", "input:0", 0));
  run.add(value(0, "a", "output:0", first, 11));
  run.add(taken(0, "b", first, 11));
  run.add(value(0, "b", "output:0", second, 12));
  return run;
}

inline Run with_type(Run run, format::DType dtype) {
  for (Item& item : run.items) item.dtype = dtype;
  return run;
}

}  // namespace convtrace::test

#pragma once
/// @file noisy_runs.h
/// Runs of made values that differ by so much, for tests of what counts as rounding.

#include <cmath>
#include <cstdint>
#include <random>
#include <string_view>
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

/// How the candidate's gradients and its optimizer differ from the baseline's.
struct Change {
  double error = 0;   ///< of gradients, in no particular direction
  double gain = 1;    ///< of that error in updates, as an adaptive optimizer has it
  double lean = 0;    ///< share of that which makes updates point along the weights
  double factor = 1;  ///< of gradients
  double rate = 1e-2;
  double decay = 0;
};

/// One step of parameters that are each moved by `rate` of a gradient in bf16 and shrunk by
/// `decay`.
inline Run trained(const Change& change, std::string_view parameters = "abcdefgh") {
  Run made;
  for (const char& letter : parameters) {
    const std::string scope(1, letter);
    const std::vector<float> weight = noisy(0);
    const std::vector<float> noise = noisy(1, static_cast<uint32_t>(letter));
    std::vector<float> gradient = weight, updated = weight;
    for (size_t i = 0; i < weight.size(); ++i) {
      const float sign = i % 3 == 0 ? 1 : -1;
      const double free = std::sqrt(1 - change.lean * change.lean) * (noise[i] - weight[i]);
      const double error = change.error * (free + change.lean * sign * weight[i]);
      gradient[i] = static_cast<float>(change.factor * weight[i] + error);
      const auto taken = gradient[i] + static_cast<float>((change.gain - 1) * error);
      updated[i] -= static_cast<float>(change.rate) * sign * taken +
                    static_cast<float>(change.decay) * weight[i];
    }
    const auto add = [&](format::Phase phase, const char* slot, const std::vector<float>& values) {
      made.add({.phase = phase, .scope = scope, .slot = slot, .values = values, .shape = {32, 32}});
    };
    add(format::Phase::kForward, "param:w", weight);
    add(format::Phase::kBackward, "grad:w", gradient);
    made.items.back().dtype = format::DType::kBF16;
    add(format::Phase::kOptimizer, "param:w", updated);
  }
  return made;
}

}  // namespace convtrace::test

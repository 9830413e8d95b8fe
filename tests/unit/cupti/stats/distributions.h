#pragma once
/// @file distributions.h
/// Tensors of random values on which the accuracy of sums is judged.

#include <algorithm>
#include <functional>
#include <limits>

#include "tests/unit/cupti/stats/support.h"

namespace convtrace::stats::test {

using Draw = std::function<double(std::mt19937_64&)>;

struct Distribution {
  const char* name;
  Draw sample;
};

inline double normal(std::mt19937_64& random) { return std::normal_distribution<double>()(random); }

inline double heavy_tail(std::mt19937_64& random) {
  return normal(random) / std::sqrt(std::fabs(normal(random)) + 1e-6);
}

inline const Distribution kDistributions[] = {
    {"normal", normal},
    {"relu", [](auto& r) { return std::max(0.0, normal(r)); }},
    {"mean 1", [](auto& r) { return 1 + 1e-2 * normal(r); }},
    {"mean 1e3", [](auto& r) { return 1e3 + normal(r); }},
    {"mean 1e6", [](auto& r) { return 1e6 + normal(r); }},
    {"heavy tail", heavy_tail},
    {"scale 1e-30", [](auto& r) { return 1e-30 * normal(r); }},
    {"scale 1e-3", [](auto& r) { return 1e-3 * normal(r); }},
    {"scale 1e30", [](auto& r) { return 1e30 * normal(r); }},
};

/// @return `count` values of the distribution, rounded to T; always the same ones.
template <typename T = float>
std::vector<T> draw(uint64_t count, const Draw& sample) {
  std::mt19937_64 random(20240117);
  std::vector<T> values(count);
  for (auto& value : values) value = static_cast<T>(sample(random));
  return values;
}

/// The same in a type of 8 or 16 bits, rounded toward the smaller of two neighbours; beyond the type's
/// range its largest value.
template <typename Bits>
std::vector<Bits> shortened(const std::vector<float>& values, format::DType dtype) {
  std::vector<std::pair<long double, Bits>> finite;
  for (uint32_t bits = 0; bits <= std::numeric_limits<Bits>::max(); ++bits) {
    const Decoded d = decode(dtype, bits);
    if (d.kind == Decoded::Kind::kFinite) finite.emplace_back(d.value, static_cast<Bits>(bits));
  }
  std::ranges::sort(finite);
  std::vector<Bits> rounded;
  for (const float value : values) {
    const auto above = std::ranges::upper_bound(finite, value, {}, [](auto& f) { return f.first; });
    rounded.push_back(above == finite.begin() ? above->second : std::prev(above)->second);
  }
  return rounded;
}

}  // namespace convtrace::stats::test

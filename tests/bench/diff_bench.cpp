// How fast the diff compares statistics: row diff.stats_pairs, JSON on stdout.
//
// usage: bench_diff [--quick]

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "tests/bench/rows.h"
#include "tools/diff/compare/compare.h"

namespace {

using namespace convtrace;

constexpr size_t kSamples = 8;

/// Records as a step of an eager run holds them: f32 activations with all statistics and samples.
diff::StepRecords step_of(size_t count, double error) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  diff::StepRecords step;
  for (size_t i = 0; i < count; ++i) {
    const double factor = 1 + error * normal(random);
    diff::ValueRecord record;
    record.dtype = format::DType::kF32;
    record.has_shape = true;
    record.dims_count = 3;
    record.dims_at = step.dims.size();
    step.dims.insert(step.dims.end(), {8, 128, 768});
    format::Stats& s = record.stats;
    s.count = s.finite = 8 * 128 * 768;
    s.mean = normal(random) * factor;
    s.std = std::abs(normal(random)) * factor;
    s.l1 = format::WideScalar::f64(7e5 * factor);
    s.l2 = 9e2 * factor;
    s.min = format::Scalar::f64(-4.5 * factor);
    s.max = format::Scalar::f64(4.7 * factor);
    s.amax = s.max;
    s.hash = random() ^ static_cast<uint64_t>(error != 0);
    s.sketch.exponent = 3;
    for (float& bucket : s.sketch.bucket) bucket = static_cast<float>(normal(random) * factor);
    record.samples_at = step.samples.size();
    record.samples_bytes = kSamples * sizeof(float);
    for (size_t j = 0; j < kSamples; ++j) {
      const auto sample = static_cast<float>(normal(random) * factor);
      const auto raw = std::as_bytes(std::span(&sample, 1));
      step.samples.insert(step.samples.end(), raw.begin(), raw.end());
    }
    step.values.push_back(record);
  }
  return step;
}

/// Compares every pair once. @return million pairs a second.
double speed(const diff::StepRecords& base, const diff::StepRecords& cand, uint64_t& not_equal) {
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < base.values.size(); ++i) {
    const diff::ValueView a = diff::view(base, base.values[i]),
                          b = diff::view(cand, cand.values[i]);
    const bool differ = diff::compare(a, b).verdict != diff::Class::kIdentical;
    not_equal += differ && diff::measure(a, b).norm > 0 ? 1 : 0;
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return static_cast<double>(base.values.size()) / taken.count() * 1e-6;
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  const size_t pairs =
      4000;  // a step of a large model; no two are equal, so every field is compared
  const int repetitions = quick ? 31 : 201;
  const diff::StepRecords base = step_of(pairs, 0), cand = step_of(pairs, 1e-7);
  uint64_t not_equal = 0;
  std::vector<double> speeds;
  for (int i = 0; i < repetitions; ++i) speeds.push_back(speed(base, cand, not_equal));
  if (not_equal != pairs * static_cast<uint64_t>(repetitions)) {
    std::fprintf(stderr, "bench_diff: pairs that should differ compared equal\n");
    return 1;
  }
  bench::Rows rows;
  rows.print({"diff.stats_pairs", "Mpairs/s", bench::Goal::kAtLeast, 15, "absolute, one core"},
             speeds);
  return 0;
}

// Speed of the statistics on one core: JSON rows on stdout.
//
// usage: bench_stats [--quick]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <random>
#include <string_view>
#include <vector>

#include "cupti/stats/compute.h"

namespace {

using convtrace::format::DType;
using convtrace::stats::StatsResult;

/// Normally distributed, as activations are; 32 MiB, more than a second-level cache.
std::vector<std::byte> normal_values(DType dtype) {
  constexpr size_t kBytes = size_t{32} << 20;
  std::vector<std::byte> bytes(kBytes);
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> pool(65536);
  for (auto& value : pool) value = normal(random);
  const uint32_t size = convtrace::format::element_bytes(dtype);
  for (size_t i = 0; i < kBytes / size; ++i) {
    const float value = pool[random() % pool.size()];
    // The upper bytes of an f32 are the bf16.
    std::memcpy(&bytes[i * size], reinterpret_cast<const std::byte*>(&value) + 4 - size, size);
  }
  return bytes;
}

double seconds_of_one(const convtrace::stats::TensorView& view, StatsResult& result) {
  const auto start = std::chrono::steady_clock::now();
  const convtrace::Status status = compute_on_cpu(view, convtrace::format::Capture::kStats, result);
  const auto end = std::chrono::steady_clock::now();
  if (!status.ok()) std::abort();
  return std::chrono::duration<double>(end - start).count();
}

void print_row(const char* name, DType dtype, double goal, int repetitions, bool first) {
  const auto bytes = normal_values(dtype);
  const auto view = convtrace::stats::dense_view(
      bytes.data(), dtype, bytes.size() / convtrace::format::element_bytes(dtype));
  StatsResult result;
  std::vector<double> rates;
  for (int i = 0; i < repetitions; ++i) {
    rates.push_back(static_cast<double>(bytes.size()) / 1e9 / seconds_of_one(view, result));
  }
  std::sort(rates.begin(), rates.end());
  const double median = rates[rates.size() / 2];
  const double spread = (rates[rates.size() * 3 / 4] - rates[rates.size() / 4]) / median;
  std::printf(
      "%s{\"name\": \"%s\", \"value\": %.3f, \"unit\": \"GB/s\", \"goal\": \">= %g\", "
      "\"against\": \"one core, all statistics, 32 MiB\", \"ok\": %s, \"spread\": %.3f}",
      first ? "" : ",\n ", name, median, goal, median >= goal ? "true" : "false", spread);
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  const int repetitions = quick ? 15 : 45;
  std::printf("[");
  print_row("stats.cpu.f32", DType::kF32, 5.0, repetitions, true);
  print_row("stats.cpu.bf16", DType::kBF16, 3.0, repetitions, false);
  std::printf("]\n");
  return 0;
}

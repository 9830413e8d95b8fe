// Speed of the statistics on a CPU: JSON rows on stdout.
//
// usage: bench_stats [--quick]

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "cupti/stats/compute.h"
#include "cupti/stats/cpu/helper_threads.h"
#include "tests/bench/rows.h"

namespace {

namespace bench = convtrace::bench;
using convtrace::format::DType;
using convtrace::stats::HelperThreads;
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

double seconds_of_one(const convtrace::stats::TensorView& view, StatsResult& result,
                      HelperThreads* threads = nullptr) {
  const auto start = std::chrono::steady_clock::now();
  const convtrace::Status status =
      compute_on_cpu(view, convtrace::format::Capture::kStats, result, threads);
  const auto end = std::chrono::steady_clock::now();
  if (!status.ok()) std::abort();
  return std::chrono::duration<double>(end - start).count();
}

/// The plain sum of floats: as fast as this machine reads, with the same threads.
double seconds_of_sum(const std::vector<std::byte>& bytes, HelperThreads& threads) {
  constexpr uint32_t kTurns = 64;
  constexpr size_t kLanes = 64;
  const auto* const values = reinterpret_cast<const float*>(bytes.data());
  const size_t share = bytes.size() / sizeof(float) / kTurns;
  std::array<float, kTurns> sums{};
  const auto work = [&](uint32_t turn) {
    std::array<float, kLanes> lanes{};
    const float* const from = values + turn * share;
    for (size_t i = 0; i + kLanes <= share; i += kLanes)
      for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += from[i + lane];
    for (const float lane : lanes) sums[turn] += lane;
  };
  const auto start = std::chrono::steady_clock::now();
  threads.for_each(kTurns, work);
  const auto end = std::chrono::steady_clock::now();
  volatile float kept = 0;
  for (const float sum : sums) kept = kept + sum;
  return std::chrono::duration<double>(end - start).count();
}

std::vector<double> compare_with_sum(uint32_t thread_count, int pairs) {
  HelperThreads threads(thread_count - 1);
  const auto bytes = normal_values(DType::kF32);
  const auto view =
      convtrace::stats::dense_view(bytes.data(), DType::kF32, bytes.size() / sizeof(float));
  StatsResult result;
  const auto sum = [&] { return seconds_of_sum(bytes, threads); };
  const auto all = [&] { return seconds_of_one(view, result, &threads); };
  (void)all();  // starts the threads
  return bench::ratios_of(pairs, sum, all);
}

std::vector<double> rates_of(DType dtype, int repetitions) {
  const auto bytes = normal_values(dtype);
  const auto view = convtrace::stats::dense_view(
      bytes.data(), dtype, bytes.size() / convtrace::format::element_bytes(dtype));
  StatsResult result;
  std::vector<double> rates;
  for (int i = 0; i < repetitions; ++i) {
    rates.push_back(static_cast<double>(bytes.size()) / 1e9 / seconds_of_one(view, result));
  }
  return rates;
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  const int repetitions = quick ? 15 : 45;
  const uint32_t threads = std::min(4u, std::max(1u, std::thread::hardware_concurrency()));
  using bench::Goal;
  bench::Rows rows;
  const char* alone = "one core, all statistics, 32 MiB";
  rows.print({"stats.cpu.f32", "GB/s", Goal::kAtLeast, 5, alone},
             rates_of(DType::kF32, repetitions));
  rows.print({"stats.cpu.bf16", "GB/s", Goal::kAtLeast, 3, alone},
             rates_of(DType::kBF16, repetitions));
  rows.print({"stats.cpu.threads", "fraction", Goal::kAtLeast, 0.25,
              "plain sum of 32 MiB f32, min(4, cores) threads both"},
             compare_with_sum(threads, repetitions));
  return 0;
}

// Speed of the statistics on a CPU: JSON rows on stdout.
//
// usage: bench_stats [--quick]

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cupti/stats/compute.h"
#include "cupti/stats/cpu/cpu_tile.h"
#include "cupti/stats/cpu/helper_threads.h"
#include "tests/bench/rows.h"

namespace {

namespace bench = convtrace::bench;
using convtrace::format::Capture;
using convtrace::format::DType;
using convtrace::stats::HelperThreads;
using convtrace::stats::StatsResult;

/// Normally distributed, as activations are; 64 MiB, more than any cache.
std::vector<std::byte> normal_values(DType dtype) {
  constexpr size_t kBytes = size_t{64} << 20;
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

template <typename Work>
double seconds_of(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(end - start).count();
}

double seconds_of_values(std::span<const std::byte> bytes, DType dtype, Capture capture,
                         HelperThreads* threads = nullptr) {
  const auto view = convtrace::stats::dense_view(
      bytes.data(), dtype, bytes.size() / convtrace::format::element_bytes(dtype));
  static StatsResult result;
  return seconds_of([&] {
    if (!compute_on_cpu(view, capture, result, threads).ok()) std::abort();
  });
}

/// Reading and adding the same bytes: as fast as one thread of this machine reads.
double seconds_of_sum(std::span<const std::byte> bytes) {
  constexpr size_t kLanes = 32;
  static uint64_t kept[kLanes];  // seen from outside, so the sum is computed
  return seconds_of([&] {
    uint64_t lanes[kLanes] = {};
    for (size_t at = 0; at < bytes.size(); at += sizeof lanes) {
      uint64_t words[kLanes];
      std::memcpy(words, &bytes[at], sizeof words);
      for (size_t i = 0; i < kLanes; ++i) lanes[i] += words[i];
    }
    for (size_t i = 0; i < kLanes; ++i) kept[i] += lanes[i];
    asm volatile("" : : "r"(kept) : "memory");
  });
}

/// @return the name of the instructions that compute_on_cpu() uses here.
std::string instruction_set() {
#if defined(__x86_64__)
  const auto used = convtrace::stats::cpu_tiles().front();
  if (used == convtrace::stats::cpu_tile_avx512) return "AVX-512";
  if (used == convtrace::stats::cpu_tile_avx2) return "AVX2";
#endif
  return "plain C++";
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  const int pairs = quick ? 15 : 45;
  const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  using bench::Goal;
  bench::Rows rows;
  const std::string text =
      instruction_set() + ", one thread, 64 MiB, over reading and adding the same bytes";
  const char* of_reading = text.c_str();
  const auto over_sum = [&](const std::vector<std::byte>& bytes, DType dtype, Capture capture) {
    return bench::ratios_of(
        pairs, [&] { return seconds_of_values(bytes, dtype, capture); },
        [&] { return seconds_of_sum(bytes); });
  };
  const auto f32 = normal_values(DType::kF32);
  rows.print({"hash.cpu_vs_read", "ratio", Goal::kAtMost, 1.15, of_reading},
             over_sum(f32, DType::kF32, Capture::kHash));
  rows.print({"stats.cpu.f32_vs_read", "ratio", Goal::kAtMost, 1.4, of_reading},
             over_sum(f32, DType::kF32, Capture::kStats));
  rows.print({"stats.cpu.bf16_vs_read", "ratio", Goal::kAtMost, 2.0, of_reading},
             over_sum(normal_values(DType::kBF16), DType::kBF16, Capture::kStats));
  rows.print({"stats.cpu.i8_vs_read", "ratio", Goal::kAtMost, 1.5, of_reading},
             over_sum(normal_values(DType::kI8), DType::kI8, Capture::kStats));
  HelperThreads threads(std::min(4u, cores) - 1);
  const auto with = [&] { return seconds_of_values(f32, DType::kF32, Capture::kStats, &threads); };
  (void)with();  // starts the threads
  rows.print({"stats.cpu.threads_time", "ratio", Goal::kAtMost, cores < 4 ? 0.55 : 0.3,
              "64 MiB f32, with the threads of min(4, cores) over without"},
             bench::ratios_of(pairs, with, [&] {
               return seconds_of_values(f32, DType::kF32, Capture::kStats);
             }));
  return 0;
}

#include "cupti/stats/cpu/cpu_tile.h"

#include <array>

namespace convtrace::stats {
namespace {

struct Runnable {
  std::array<CpuTileFunction, 3> functions{};
  size_t count = 0;

  Runnable() {
#if defined(__x86_64__)
    // Processors without VBMI2 (before Ice Lake and Zen 4) lower their clock for vectors of 512
    // bits, the host program's too.
    if (__builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512ifma") &&
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      functions[count++] = cpu_tile_avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      functions[count++] = cpu_tile_avx2;
#endif
    functions[count++] = cpu_tile_baseline;
  }
};

}  // namespace

std::span<const CpuTileFunction> cpu_tiles() noexcept {
  static const Runnable runnable;
  return {runnable.functions.data(), runnable.count};
}

}  // namespace convtrace::stats

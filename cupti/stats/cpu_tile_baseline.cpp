#define CONVTRACE_CPU_TILE cpu_tile_baseline
#include "cupti/stats/cpu_tile_impl.h"

namespace convtrace::stats {

CpuTileFunction cpu_tile() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return cpu_tile_avx2;
#endif
  return cpu_tile_baseline;
}

}  // namespace convtrace::stats

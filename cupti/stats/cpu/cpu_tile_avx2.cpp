#if defined(__x86_64__)
#define CONVTRACE_CPU_TILE cpu_tile_avx2
#include "cupti/stats/cpu/cpu_tile_impl.h"
#endif

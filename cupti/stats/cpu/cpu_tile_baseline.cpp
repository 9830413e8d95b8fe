#define CONVTRACE_CPU_TILE cpu_tile_baseline
#include "cupti/stats/cpu/cpu_tile_impl.h"

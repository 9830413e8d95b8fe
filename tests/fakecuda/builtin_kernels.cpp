#include "tests/fakecuda/builtin_kernels.h"

#include <cstring>

#include "cupti/stats/kernels/host_replay.h"

namespace fakecuda {
namespace {

namespace stats = convtrace::stats;

/// A batch that points to nothing has lost the context by the time the replay gives up.
void run_stats(const fakecuda_launch* launch) {
  stats::Batch batch;
  std::memcpy(&batch, launch->params[0], sizeof batch);
  (void)stats::replay_stats_kernel(batch, launch->grid[0], launch->device);
}

void run_gather(const fakecuda_launch* launch) {
  stats::Batch batch;
  std::memcpy(&batch, launch->params[0], sizeof batch);
  (void)stats::replay_gather_kernel(batch, launch->device);
}

constexpr unsigned kParams[] = {sizeof(stats::Batch)};
constexpr fakecuda_kernel kKernels[] = {{stats::kStatsKernelName, run_stats, 1, kParams},
                                        {stats::kGatherKernelName, run_gather, 1, kParams}};

constexpr unsigned char kFatbinMagic[] = {0x50, 0xed, 0x55, 0xba};

}  // namespace

std::span<const fakecuda_kernel> builtin_kernels(const void* image) {
  if (std::memcmp(image, kFatbinMagic, sizeof kFatbinMagic) != 0) return {};
  return kKernels;
}

}  // namespace fakecuda

#include "tests/fakecuda/builtin_kernels.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/fakecuda/scheduler.h"
#include "tests/support/host_replay.h"

namespace fakecuda {
namespace {

namespace stats = convtrace::stats;

/// Runs the blocks of a kernel. A parameter that points to nothing has lost the context by the time the
/// replay gives up. With a seed blocks run backwards in every other one, and half of them before other
/// streams go on.
template <typename Param>
void run_blocks(const fakecuda_launch* launch,
                bool (*replay)(const Param&, const stats::Translate&, std::span<const uint32_t>)) {
  Param param;
  std::memcpy(&param, launch->params[0], sizeof param);
  const uint32_t grid = launch->grid[0];
  std::vector<uint32_t> blocks(grid);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::span<const uint32_t> order = blocks;
  if (scheduler().is_seeded()) {
    if (scheduler().seed() % 2 == 1) std::ranges::reverse(blocks);
    const bool first = *launch->unfinished == 0;
    order = first ? order.first(grid / 2) : order.subspan(grid / 2);
    *launch->unfinished = first ? 1 : 0;
  }
  (void)replay(param, launch->device, order);
}

void run_stats(const fakecuda_launch* launch) { run_blocks(launch, &stats::replay_stats_kernel); }
void run_fold(const fakecuda_launch* launch) { run_blocks(launch, &stats::replay_fold_kernel); }

void run_list(const fakecuda_launch* launch) {
  stats::ManyBatch batch;
  std::memcpy(&batch, launch->params[0], sizeof batch);
  (void)stats::replay_list_kernel(batch, launch->device);
}

void run_gather(const fakecuda_launch* launch) {
  stats::CopyJob job;
  std::memcpy(&job, launch->params[0], sizeof job);
  (void)stats::replay_gather_kernel(job, launch->device);
}

constexpr unsigned kStatsParams[] = {sizeof(stats::FewBatch)};
constexpr unsigned kFoldParams[] = {sizeof(stats::Fold)};
constexpr unsigned kListParams[] = {sizeof(stats::ManyBatch)};
constexpr unsigned kGatherParams[] = {sizeof(stats::CopyJob)};
constexpr fakecuda_kernel kKernels[] = {{stats::kStatsKernelName, run_stats, 1, kStatsParams},
                                        {stats::kFoldKernelName, run_fold, 1, kFoldParams},
                                        {stats::kListKernelName, run_list, 1, kListParams},
                                        {stats::kGatherKernelName, run_gather, 1, kGatherParams}};

constexpr unsigned char kFatbinMagic[] = {0x50, 0xed, 0x55, 0xba};

}  // namespace

std::span<const fakecuda_kernel> builtin_kernels(const void* image) {
  if (std::memcmp(image, kFatbinMagic, sizeof kFatbinMagic) != 0) return {};
  return kKernels;
}

}  // namespace fakecuda

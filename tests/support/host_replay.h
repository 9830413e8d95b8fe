#pragma once
/// @file host_replay.h
/// The kernels' grids run on the host: the same per-thread functions and the same trees, with loops
/// where a device has threads and shuffles.
///
/// Place:    tests and the fake driver. What it cannot show: that
///           nvcc keeps the arithmetic (arith.h sees to that).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "cupti/stats/kernels/device_layout.h"

namespace convtrace::stats {

/// @return where the host can reach `bytes` bytes at a device address, or null.
using Translate = std::function<void*(uint64_t address, size_t bytes)>;

/// Takes the head of a list from `batch`, where a device takes it from the list.
/// @param blocks that run, in this order.
/// @return false if some address could not be translated; then nothing was done.
bool replay_stats_kernel(const FewBatch& batch, const Translate& translate,
                         std::span<const uint32_t> blocks);

/// The kernel that makes results of a log. @param blocks  as above.
bool replay_fold_kernel(const Fold& fold, const Translate& translate,
                        std::span<const uint32_t> blocks);

/// The kernel that puts a list of tensors where the statistics kernel looks for it.
bool replay_list_kernel(const ManyBatch& batch, const Translate& translate);

/// The kernel that copies a tensor in logical order.
bool replay_gather_kernel(const CopyJob& job, const Translate& translate);

}  // namespace convtrace::stats

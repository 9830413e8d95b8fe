#pragma once
/// @file device_layout.h
/// What crosses between host and device: a batch of tensors going in as one kernel parameter,
/// result slots coming back through pinned memory. Plain structures with the same layout on both
/// sides.
///
/// Place:    filled and read by cupti/values/device_stats.cpp, used by kernels/stats_kernel.cu.
/// Order:    a device writes everything of a slot, makes it visible to the host, then writes
///           `sequence`. Addresses are device addresses.

#include <cstdint>

#include "cupti/stats/tile/partial.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

inline constexpr char kStatsKernelName[] = "convtrace_stats";
inline constexpr char kGatherKernelName[] = "convtrace_gather";
inline constexpr uint32_t kGatherThreads = 256;

/// Limits of one launch. Together they fit the 4 KiB of parameters that every driver takes.
inline constexpr uint32_t kMaxBatchTensors = 64;
inline constexpr uint32_t kMaxBatchDims = 48;
inline constexpr uint32_t kMaxBatchTiles = 4096;
static_assert(kMaxBatchTiles >= kMaxTiles);

struct DeviceDim {
  uint64_t extent;
  int64_t stride;  ///< in elements
};

struct DeviceTensor {
  uint64_t data;        ///< address of the first logical element
  uint64_t count;       ///< real elements, not 0
  uint64_t slot;        ///< address of its ResultSlot
  uint64_t sequence;    ///< value that marks the slot as complete
  uint32_t first_tile;  ///< block of the grid that takes its tile 0
  uint16_t first_dim;   ///< in Batch::dims, outermost first
  uint8_t rank;         ///< 0: dense
  uint8_t dtype;        ///< walked type
  uint32_t hash_only;
  uint32_t leading;  ///< first elements that are to be written behind the slot
};

/// The kernel's parameter. Block b takes one tile: of the last tensor whose first_tile is <= b.
struct Batch {
  uint64_t partials;  ///< address of kMaxBatchTiles Partials, by block
  uint64_t tickets;   ///< address of kMaxBatchTensors u32, zero between launches
  uint32_t tensor_count;
  uint32_t variant;  ///< a Variant
  DeviceTensor tensors[kMaxBatchTensors];
  DeviceDim dims[kMaxBatchDims];
};
static_assert(sizeof(Batch) <= 4096);

/// The leading elements follow in the memory behind it.
struct ResultSlot {
  Partial total;                          ///< of all tiles; hash_only: nothing
  uint64_t range_hashes[kMaxHashRanges];  ///< as range_hash() gives them
  uint64_t samples[kWholeCount];          ///< raw bits, zero-extended
  uint64_t sequence;
};

}  // namespace convtrace::stats

#pragma once
/// @file device_layout.h
/// Structures that host and device exchange, with the same layout on both sides. A batch of tensors is
/// passed as a kernel parameter, a long one in device memory; result slots return in pinned memory.
///
/// The statistics kernel leaves the results of tiles in a log in device memory. The fold kernel
/// combines them into the results of many tensors.
///
/// Place:    filled and read by cupti/stats/batch.h, used by kernels/stats_kernel.cu and
///           fold_kernel.cu.
/// Order:    a device writes everything of a slot, makes it visible to the host, then writes
///           `sequence`. Addresses are device addresses.

#include <cstddef>
#include <cstdint>

#include "cupti/stats/tile/partial.h"
#include "cupti/stats/tile/tiling.h"

namespace convtrace::stats {

inline constexpr char kStatsKernelName[] = "convtrace_stats";
inline constexpr char kFoldKernelName[] = "convtrace_fold";
inline constexpr char kListKernelName[] = "convtrace_list";
inline constexpr char kGatherKernelName[] = "convtrace_gather";
inline constexpr uint32_t kGatherThreads = 256;
inline constexpr uint32_t kFoldThreads = 256;
inline constexpr uint32_t kListThreads = 256;

inline constexpr uint32_t kMaxBatchDims = 40;
inline constexpr uint32_t kMaxCopyDims = 17;

struct DeviceDim {
  uint64_t extent;
  int64_t stride;  ///< in elements
};

struct DeviceTensor {
  uint64_t data;        ///< address of the first logical element
  uint64_t count;       ///< elements of the walked type, not 0
  uint32_t slot;        ///< bytes from Batch::slots to its ResultSlot
  uint32_t first_tile;  ///< block of the grid that takes its tile 0
  uint32_t leading;     ///< first values that are to be written behind the slot
  uint8_t first_dim;    ///< in Batch::dims, outermost first
  uint8_t rank;         ///< 0: dense
  uint8_t dtype;        ///< walked type
  uint8_t hash_only;
};
static_assert(sizeof(DeviceTensor) == 32 && kMaxBatchDims <= UINT8_MAX);

/// Header of a batch; `tensor_count` DeviceTensors follow it. Block b computes one tile: of the last
/// tensor whose first_tile is <= b. The places of tensor i in the log begin at first_tile + i.
struct Batch {
  uint64_t log;    ///< address of the first place of its tensors
  uint64_t slots;  ///< address that slots are counted from
  uint64_t list;   ///< address of a ManyBatch
  uint32_t tensor_count;
  uint32_t variant;  ///< a Variant
  DeviceDim dims[kMaxBatchDims];

  [[nodiscard]] CONVTRACE_HD const DeviceTensor* tensors() const {
    return reinterpret_cast<const DeviceTensor*>(this + 1);
  }
};

/// @tparam Bytes  at most; a launch pays for all of its parameter, however few tensors there are.
template <uint32_t Bytes>
struct BatchOf {
  static constexpr uint32_t kMaxTensors = (Bytes - sizeof(Batch)) / sizeof(DeviceTensor);
  Batch head;
  DeviceTensor tensors[kMaxTensors];
};
/// The parameter of the statistics kernel. The list of more tensors is at Batch::list.
using FewBatch = BatchOf<4096>;
/// The parameter of the kernel that puts a list there: the largest that there is, from CUDA 12.1 on.
using ManyBatch = BatchOf<32764>;
static_assert(offsetof(FewBatch, tensors) == sizeof(Batch));
static_assert(ManyBatch::kMaxTensors >= 1000);

/// A log consists of places of this size. A tensor takes one for its samples, then one a tile.
using LogPlace = Partial;
struct SampleRecord {
  uint64_t samples[kWholeCount];  ///< raw bits, zero-extended
};
static_assert(sizeof(SampleRecord) <= sizeof(LogPlace));
CONVTRACE_HD constexpr uint32_t log_places(uint32_t tiles) { return 1 + tiles; }

/// A tensor in a log, of which the fold kernel makes a result.
struct FoldJob {
  uint64_t bytes;     ///< size of the tensor: Layout::bytes()
  uint64_t sequence;  ///< value that marks its slot as complete
  uint32_t slot;      ///< bytes from Fold::slots to its ResultSlot
  uint32_t place;     ///< its first place in the log
  uint32_t samples;   ///< elements to sample; 0: only the hash is wanted
  uint32_t unused;
};

/// The parameter of the fold kernel. Block b takes job b.
struct Fold {
  static constexpr uint32_t kMaxJobs = 127;
  uint64_t log;    ///< address of place 0
  uint64_t slots;  ///< address that slots are counted from
  uint64_t count;
  FoldJob jobs[kMaxJobs];
};
static_assert(sizeof(Fold) <= 4096);

/// The parameter of the kernel that copies a tensor in logical order.
struct CopyJob {
  DeviceTensor tensor;  ///< only data, count, rank and dtype are used; count 0: nothing to copy
  uint64_t to;          ///< address of memory for whole groups, aligned for them
  DeviceDim dims[kMaxCopyDims];
};

/// The result of one tensor. Its leading values follow in memory.
struct ResultSlot {
  Partial total;                          ///< combination of all tiles; hash_only: not set
  uint64_t range_hashes[kMaxHashRanges];  ///< as range_hash() gives them
  uint64_t samples[kWholeCount];          ///< raw bits, zero-extended
  uint64_t sequence;
};

}  // namespace convtrace::stats

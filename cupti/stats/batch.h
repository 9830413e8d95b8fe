#pragma once
/// @file batch.h
/// The host's side of device_layout.h: filling a launch's parameter and reading its results.
///
/// Place:    cupti/values/context_stats.cpp, result_ring.cpp. Makes no CUDA call.
/// Threads:  not thread-safe; one launch at a time.

#include "cupti/stats/compute.h"
#include "cupti/stats/kernels/device_layout.h"
#include "cupti/stats/tile/layout.h"

namespace convtrace::stats {

/// The host's description of a log: its free places and the jobs that lie in it.
struct Log {
  static constexpr uint32_t kMaxJobs = ManyBatch::kMaxTensors;
  uint64_t address = 0;  ///< device address of place 0
  uint32_t places = 0;   ///< at least log_places(kMaxTiles)
  uint32_t taken = 0;
  uint32_t count = 0;
  FoldJob jobs[kMaxJobs];

  void clear() { count = taken = 0; }
};

/// @param first  index of the first job. @return the parameter of a launch of the fold kernel, with as
/// many jobs as it takes.
[[nodiscard]] Fold fold_of(const Log& log, uint32_t first, uint64_t slots) noexcept;

class BatchBuilder {
 public:
  /// @param batch  where the launch's parameter is made; outlives this, as `log`. The caller fills in
  /// slots, list and variant of its head.
  template <uint32_t Bytes>
  BatchBuilder(BatchOf<Bytes>& batch, Log& log) noexcept
      : head_(batch.head), tensors_(batch.tensors), most_(batch.kMaxTensors), log_(log) {
    clear();
  }

  /// Adds a tensor to the launch and to the log.
  /// @param layout   not empty. @param slot  bytes from Batch::slots and Fold::slots.
  /// @param sequence  that marks the slot as complete.
  /// @param leading  elements that are to be written behind the slot.
  /// @return false if it does not fit any more; an empty batch and an empty log take any tensor.
  bool add(const Layout& layout, format::Capture capture, uint32_t slot, uint64_t sequence,
           uint32_t leading = 0) noexcept;
  /// Begins the next launch.
  void clear() noexcept;

  [[nodiscard]] Batch& batch() { return head_; }
  [[nodiscard]] uint32_t blocks() const { return tiles_; }  ///< the grid

 private:
  Batch& head_;
  DeviceTensor* const tensors_;
  const uint32_t most_;
  Log& log_;
  uint32_t tiles_ = 0;
  uint32_t dims_ = 0;
};

/// @param to  as CopyJob's.
[[nodiscard]] CopyJob copy_job(const Layout& layout, uint64_t to) noexcept;

/// @param slot  complete. @param count of the layout. @param dtype as asked for, not as walked.
[[nodiscard]] StatsResult read_slot(const ResultSlot& slot, uint64_t count, format::DType dtype,
                                    format::Capture capture,
                                    Variant variant = Variant::kWide) noexcept;

}  // namespace convtrace::stats

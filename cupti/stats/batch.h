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

class BatchBuilder {
 public:
  /// @param batch  where the launch's parameter is made; outlives this. The caller fills in arena,
  /// slots, sequence and variant of its head.
  template <uint32_t Bytes>
  explicit BatchBuilder(BatchOf<Bytes>& batch) noexcept
      : head_(batch.head), tensors_(batch.tensors), most_(batch.kMaxTensors) {
    clear();
  }

  /// @param layout   not empty. @param slot  bytes from Batch::slots.
  /// @param leading  elements that are to be written behind the slot.
  /// @return false if it does not fit into this launch any more; an empty batch takes any tensor.
  bool add(const Layout& layout, format::Capture capture, uint32_t slot,
           uint32_t leading = 0) noexcept;
  void clear() noexcept;

  [[nodiscard]] Batch& batch() { return head_; }
  [[nodiscard]] uint32_t blocks() const { return tiles_; }  ///< the grid

 private:
  Batch& head_;
  DeviceTensor* const tensors_;
  const uint32_t most_;
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

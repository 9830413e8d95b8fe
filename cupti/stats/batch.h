#pragma once
/// @file batch.h
/// The host's side of device_layout.h: filling a launch's parameter and reading its results.
///
/// Place:    cupti/values/device_stats.cpp. Makes no CUDA call.
/// Threads:  not thread-safe; one launch at a time.

#include "cupti/stats/compute.h"
#include "cupti/stats/kernels/device_layout.h"
#include "cupti/stats/tile/layout.h"

namespace convtrace::stats {

class BatchBuilder {
 public:
  /// @param partials @param tickets of the arena, see Batch.
  BatchBuilder(uint64_t partials, uint64_t tickets, Variant variant = Variant::kWide) noexcept;

  /// @param layout   not empty. @param slot, @param sequence where its result goes.
  /// @param leading  elements that are to be written behind the slot.
  /// @return false if it does not fit into this launch any more; an empty batch takes any tensor.
  bool add(const Layout& layout, format::Capture capture, uint64_t slot, uint64_t sequence,
           uint32_t leading = 0) noexcept;

  [[nodiscard]] const Batch& batch() const { return batch_; }
  [[nodiscard]] uint32_t blocks() const { return tiles_; }  ///< the grid

 private:
  Batch batch_;
  uint32_t tiles_ = 0;
  uint32_t dims_ = 0;
};

/// @param slot  complete. @param count of real elements. @param dtype as asked for, not as walked.
[[nodiscard]] StatsResult read_slot(const ResultSlot& slot, uint64_t count, format::DType dtype,
                                    format::Capture capture,
                                    Variant variant = Variant::kWide) noexcept;

}  // namespace convtrace::stats

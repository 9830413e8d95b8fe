#pragma once
/// @file capture_tracker.h
/// Whether any stream of the process is being captured into a graph, as the gate and CUPTI tell.
///
/// Work that is launched on the legacy stream, or that belongs to nobody's graph, can invalidate a
/// capture; convtrace therefore launches nothing while one is active anywhere.
///
/// Threads:  any; any_active() is one relaxed load.

#include <cuda.h>

#include <atomic>
#include <mutex>
#include <set>

#include "cupti/state_decoder.h"

namespace convtrace::cupti {

class CaptureTracker {
 public:
  /// A stream may be begun twice or ended without a begin (calls that failed): it counts once.
  void apply(const CaptureChange& change) {
    const std::lock_guard lock(mutex_);
    if (change.begins) {
      streams_.insert(change.stream);
    } else {
      streams_.erase(change.stream);
    }
    active_.store(!streams_.empty(), std::memory_order_relaxed);
  }

  [[nodiscard]] bool any_active() const noexcept { return active_.load(std::memory_order_relaxed); }

 private:
  std::mutex mutex_;
  std::set<CUstream> streams_;
  std::atomic<bool> active_{false};
};

}  // namespace convtrace::cupti

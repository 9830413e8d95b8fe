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
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "cupti/state_decoder.h"

namespace convtrace::cupti {

class CaptureTracker {
 public:
  /// A stream may be begun twice or ended without a begin (calls that failed): it counts once.
  /// To be called on the thread that made the call. @param context of the stream; null: not known.
  void apply(const CaptureChange& change, CUcontext context = nullptr) {
    const std::lock_guard lock(mutex_);
    if (change.begins) {
      CUcontext& known = streams_[key_of(change.stream)];
      if (context != nullptr) known = context;
    } else {
      streams_.erase(key_of(change.stream));
    }
    note();
  }

  /// The streams of a context end with it, and what they capture.
  void context_ended(CUcontext context) {
    const std::lock_guard lock(mutex_);
    std::erase_if(streams_, [=](const auto& stream) { return stream.second == context; });
    note();
  }

  /// Without a call to the driver, so of the streams alone that a capture was begun on; one that
  /// joined by an event is not known. @param stream effective.
  [[nodiscard]] bool is_capturing(CUstream stream) const {
    if (!any_active()) return false;
    const std::lock_guard lock(mutex_);
    return streams_.contains(key_of(stream));
  }

  [[nodiscard]] bool any_active() const noexcept { return active_.load(std::memory_order_relaxed); }

 private:
  /// Each thread has a stream of its own under the name of the per-thread default stream.
  using Key = std::pair<CUstream, std::thread::id>;
  static Key key_of(CUstream stream) noexcept {
    return {stream,
            stream == CU_STREAM_PER_THREAD ? std::this_thread::get_id() : std::thread::id()};
  }
  void note() { active_.store(!streams_.empty(), std::memory_order_relaxed); }

  mutable std::mutex mutex_;
  std::map<Key, CUcontext> streams_;
  std::atomic<bool> active_{false};
};

}  // namespace convtrace::cupti

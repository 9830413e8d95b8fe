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
#include <thread>
#include <utility>

#include "cupti/calls/state_decoder.h"
#include "cupti/calls/sync_decoder.h"
#include "format/base/mutex.h"

namespace convtrace::cupti {

class CaptureTracker {
 public:
  /// A stream may be begun twice or ended without a begin (calls that failed): it counts once.
  /// To be called on the thread that made the call. @param context of the stream; null: not known.
  void apply(const CaptureChange& change, CUcontext context = nullptr) {
    const Lock lock(mutex_);
    const Key key = key_of(change.stream);
    if (change.begins) {
      Capture& capture = streams_[key];
      capture.origin = key;
      if (context != nullptr) capture.context = context;
      note();
    } else {
      end([&](const Capture& capture) { return capture.origin == key; });
    }
  }

  /// A stream that waits for an event of a capture takes part in it, to the capture's end.
  /// @return whether the call was captured: then it ordered nothing yet.
  bool apply(const SyncChange& change) {
    if (!any_active()) return false;
    const Lock lock(mutex_);
    const Key key = key_of(change.stream);
    const auto found = streams_.find(key);
    const bool capturing = found != streams_.end();
    switch (change.kind) {
      case format::SyncKind::kEventRecord:
        events_.erase(change.event);
        if (capturing) events_.emplace(change.event, found->second);
        return capturing;
      case format::SyncKind::kStreamWait: {
        const auto event = events_.find(change.event);
        if (event != events_.end()) streams_.emplace(key, event->second);
        return capturing || event != events_.end();
      }
      case format::SyncKind::kStreamDestroy:
        if (capturing && found->second.origin != key) streams_.erase(found);
        end([&](const Capture& capture) { return capture.origin == key; });
        return false;
      case format::SyncKind::kEventDestroy:
        events_.erase(change.event);
        return false;
      default:
        return false;
    }
  }

  /// The streams of a context end with it, and what they capture.
  void context_ended(CUcontext context) {
    const Lock lock(mutex_);
    end([=](const Capture& capture) { return capture.context == context; });
  }

  /// Without a call to the driver. @param stream effective.
  [[nodiscard]] bool is_capturing(CUstream stream) const {
    if (!any_active()) return false;
    const Lock lock(mutex_);
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
  /// What streams and events belong to: the stream it was begun on, and its context if known.
  struct Capture {
    CUcontext context = nullptr;
    Key origin;
  };
  void end(auto ends) CONVTRACE_REQUIRES(mutex_) {
    std::erase_if(streams_, [&](const auto& stream) { return ends(stream.second); });
    std::erase_if(events_, [&](const auto& event) { return ends(event.second); });
    note();
  }
  void note() CONVTRACE_REQUIRES(mutex_) {
    active_.store(!streams_.empty(), std::memory_order_relaxed);
  }

  mutable Mutex mutex_;
  std::map<Key, Capture> streams_ CONVTRACE_GUARDED_BY(mutex_);
  /// Recorded in a capture that is under way.
  std::map<CUevent, Capture> events_ CONVTRACE_GUARDED_BY(mutex_);
  std::atomic<bool> active_{false};
};

}  // namespace convtrace::cupti

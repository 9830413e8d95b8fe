#pragma once
/// @file capture_tracker.h
/// Tracks which streams of the process are being captured into graphs, from reports of gate and
/// CUPTI.
///
/// Work on the legacy stream, or in a stream that is not part of the capture, can invalidate a
/// capture. So convtrace launches nothing while any capture is active.
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
  /// A stream whose capture is begun twice, or ended without a begin (calls that failed), counts
  /// once. Call on the thread that made the driver's call. @param context  of the stream; null: not
  /// known.
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

  /// A stream that waits for an event of a capture joins that capture until it ends.
  /// @return whether the call was captured, so that it orders no work now.
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
      case format::SyncKind::kEventDestroy: events_.erase(change.event); return false;
      default: return false;
    }
  }

  /// Ends all captures of the context's streams: the streams end with their context.
  void context_ended(CUcontext context) {
    const Lock lock(mutex_);
    end([=](const Capture& capture) { return capture.context == context; });
  }

  /// Makes no call to the driver. @param stream  as effective_stream() returns it.
  [[nodiscard]] bool is_capturing(CUstream stream) const {
    if (!any_active()) return false;
    const Lock lock(mutex_);
    return streams_.contains(key_of(stream));
  }

  [[nodiscard]] bool any_active() const noexcept { return active_.load(std::memory_order_relaxed); }

 private:
  /// The per-thread default stream is another stream in each thread, so the thread belongs to the
  /// key.
  using Key = std::pair<CUstream, std::thread::id>;
  static Key key_of(CUstream stream) noexcept {
    return {stream,
            stream == CU_STREAM_PER_THREAD ? std::this_thread::get_id() : std::thread::id()};
  }
  /// The capture that a stream or an event belongs to: the stream it began on, and its context if
  /// known.
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
  /// Events that were recorded in a capture that is active.
  std::map<CUevent, Capture> events_ CONVTRACE_GUARDED_BY(mutex_);
  std::atomic<bool> active_{false};
};

}  // namespace convtrace::cupti

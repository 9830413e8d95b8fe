#pragma once
/// @file device_stats.h
/// Statistics computed where the tensor lives: loads the embedded kernels, launches them on the
/// producer's stream, and picks the results out of a pinned ring that the device writes and the
/// host polls.
///
/// Threads:  submit from any thread, collect from one. Contexts are prepared on a helper thread,
/// never in a callback. Errors:   anything that cannot be done is a NotSampled; after a CUDA error
/// of our own, all is kGpuWorkOff. Source:   docs/design.md "Rules for our own GPU work".

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <span>

#include "cupti/api.h"
#include "cupti/interceptor.h"
#include "format/event_sink.h"

namespace convtrace::cupti {

class DeviceStats {
 public:
  /// @param api and @param sink outlive this. Makes no CUDA call.
  DeviceStats(const DriverApi& api, format::EventSink& sink);
  ~DeviceStats();

  /// Queues preparation of a context (module, ring, arena) on the helper thread; returns at once.
  /// Idempotent.
  void prepare(CUcontext context) noexcept;
  /// The context is going away: forget its handles, make no call on it.
  void forget(CUcontext context) noexcept;

  /// Launches statistics for `batch` on `stream` of the current context, behind what the stream
  /// holds now. The caller has checked that the stream may be used (not capturing, produced the
  /// memory).
  format::NotSampled submit(std::span<const DeviceRequest> batch, CUstream stream) noexcept;

  /// Emits finished results to the sink. @return how many are still under way.
  uint64_t collect() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::cupti

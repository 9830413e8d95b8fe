#pragma once
/// @file relaxed_capture.h
/// Lets the calling thread make calls that a capture in another thread forbids: allocations, and
/// queries that load a kernel lazily.
///
/// Threads:  ordinary code of any thread.

#include <cuda.h>

#include "cupti/driver/api.h"

namespace convtrace::cupti {

class RelaxedCapture {
 public:
  explicit RelaxedCapture(const DriverApi& api) : api_(api) {
    api_.thread_exchange_stream_capture_mode(&mode_);
  }
  ~RelaxedCapture() { api_.thread_exchange_stream_capture_mode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const DriverApi& api_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace convtrace::cupti

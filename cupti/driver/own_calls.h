#pragma once
/// @file own_calls.h
/// Scopes in which convtrace makes CUDA calls of its own.
///
/// Threads:  any; a scope belongs to its thread.

#include <cuda.h>

#include "cupti/driver/api.h"

namespace convtrace::cupti {

/// Marks the CUDA calls in its scope, so that neither the gate nor a CUPTI callback takes them for the
/// program's. Needed around every call of DriverApi that CUPTI can see.
class OwnCalls {
 public:
  OwnCalls() noexcept { ++depth_; }
  ~OwnCalls() { --depth_; }
  OwnCalls(const OwnCalls&) = delete;
  OwnCalls& operator=(const OwnCalls&) = delete;

  [[nodiscard]] static bool active() noexcept { return depth_ != 0; }

 private:
  static inline thread_local int depth_ = 0;
};

/// Makes a context current, and restores the previous one at its end. Not for a CUPTI callback.
class ContextScope {
 public:
  ContextScope(const DriverApi& driver, CUcontext context) : driver_(driver) {
    const OwnCalls own;
    result_ = driver_.ctx_push_current(context);
  }
  ~ContextScope() {
    const OwnCalls own;
    CUcontext popped = nullptr;
    if (result_ == CUDA_SUCCESS) driver_.ctx_pop_current(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  /// @return CUDA_SUCCESS if the context is current.
  [[nodiscard]] CUresult result() const { return result_; }

 private:
  const DriverApi& driver_;
  CUresult result_ = CUDA_ERROR_UNKNOWN;
};

/// Lets the calling thread make calls that a capture in another thread forbids: allocations, and
/// queries that load a kernel lazily. Not for a CUPTI callback.
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

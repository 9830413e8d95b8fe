#pragma once
/// @file context_scope.h
/// Makes a context current in a scope, and restores the previous one at its end.
///
/// Threads:  ordinary code of any thread, never a CUPTI callback.

#include <cuda.h>

#include "cupti/driver/api.h"
#include "cupti/driver/own_calls.h"

namespace convtrace::cupti {

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

}  // namespace convtrace::cupti

#pragma once
/// @file cuda_error.h
/// Classifies CUresult codes.

#include <cuda.h>

#include "cupti/driver/api.h"

namespace convtrace::cupti {

/// After such an error every later call in the context fails. It may be the bug that the user looks
/// for, so convtrace launches nothing into that context any more.
constexpr bool is_sticky(int result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED: return true;
    default: return false;
  }
}

/// A later call may succeed: the driver is starting, or the context is a primary one that its thread
/// has not finished. Source: cuda.h, CUresult.
constexpr bool is_transient(int result) {
  return result == CUDA_ERROR_NOT_INITIALIZED || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/// @return as the driver spells it; never null.
inline const char* name_of(const DriverApi& driver, CUresult result) noexcept {
  const char* name = nullptr;
  const bool known = driver.get_error_name(result, &name) == CUDA_SUCCESS && name != nullptr;
  return known ? name : "an unknown error";
}

}  // namespace convtrace::cupti

#pragma once
/// @file memory_calls.h
/// Functions that the entry points for memory share.

#include "tests/fakecuda/driver.h"

namespace fakecuda {

/// entry_status() for a call that a capture forbids.
inline CUresult unsafe_entry() {
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  return forbid_during_capture();
}

inline CUresult allocate(CUdeviceptr* address, size_t bytes, bool ordered = false) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  *address = driver().memory.allocate(bytes, ordered);
  return *address == 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

inline uint64_t number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

}  // namespace fakecuda

#pragma once
/// @file memory_decoder.h
/// One form for every driver call that gives, takes or writes memory.
///
/// Place:    fed with the parameter structs that CUPTI delivers (generated_cuda_meta.h).
/// Threads:  pure functions.
/// Source:   cuda.h, section "Memory Management"; cuMemMap for virtual memory.

#include <cuda.h>

#include <cstdint>

#include "format/events.h"

namespace convtrace::cupti {

struct MemoryChange {
  enum class Kind : uint8_t {
    kAlloc,
    kFree,
    kUnmap,  ///< frees every mapping inside [address, address + bytes)
    kCopy,
    kSet,
  };
  Kind kind = Kind::kAlloc;
  format::MemorySource memory = format::MemorySource::kDriver;
  uint64_t address = 0;
  uint64_t bytes = 0;   ///< kAlloc: 0 means that the call does not tell; kFree: 0
  uint64_t source = 0;  ///< kCopy: address; kSet: the value
  CUstream stream = nullptr;
};

/// X(function): each decoder takes a pointer to the `<function>_params` struct. Those of kind
/// kAlloc read what the call returned, so they are for a call that succeeded.
#define CONVTRACE_MEMORY_CALLS(X)    \
  X(cuMemAlloc_v2)                   \
  X(cuMemAllocPitch_v2)              \
  X(cuMemAllocManaged)               \
  X(cuMemAllocAsync)                 \
  X(cuMemAllocFromPoolAsync)         \
  X(cuMemAllocHost_v2)               \
  X(cuMemHostAlloc)                  \
  X(cuMemHostRegister_v2)            \
  X(cuMemMap)                        \
  X(cuIpcOpenMemHandle_v2)           \
  X(cuExternalMemoryGetMappedBuffer) \
  X(cuMemPoolImportPointer)          \
  X(cuMemFree_v2)                    \
  X(cuMemFreeAsync)                  \
  X(cuMemFreeHost)                   \
  X(cuMemHostUnregister)             \
  X(cuMemUnmap)                      \
  X(cuIpcCloseMemHandle)             \
  X(cuMemcpy)                        \
  X(cuMemcpyAsync)                   \
  X(cuMemcpyHtoD_v2)                 \
  X(cuMemcpyHtoDAsync_v2)            \
  X(cuMemcpyDtoD_v2)                 \
  X(cuMemcpyDtoDAsync_v2)            \
  X(cuMemcpyPeerAsync)               \
  X(cuMemsetD8_v2)                   \
  X(cuMemsetD16_v2)                  \
  X(cuMemsetD32_v2)                  \
  X(cuMemsetD8Async)                 \
  X(cuMemsetD16Async)                \
  X(cuMemsetD32Async)

#define CONVTRACE_X(function) MemoryChange decode_##function(const void* params) noexcept;
CONVTRACE_MEMORY_CALLS(CONVTRACE_X)
#undef CONVTRACE_X

}  // namespace convtrace::cupti

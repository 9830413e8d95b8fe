#pragma once
/// @file copy_decoder.h
/// Decodes the driver calls that write memory without a kernel into a MemoryChange. Writes to
/// memory that has an address are reported; writes into arrays are kNothing, and copies to the host
/// kToHost. A call that can do nothing else is in the list only if it may wait.
///
/// Place:    fed with the parameter structs that CUPTI delivers (generated_cuda_meta.h), after the
///           call succeeded.
/// Threads:  pure functions.
/// Source:   cuda.h, sections "Memory Management" and "Stream Memory Operations".

#include <cstddef>

#include "cupti/calls/memory_decoder.h"

namespace convtrace::cupti {

/// X(function): each decoder takes a pointer to the `<function>_params` struct.
#define CONVTRACE_COPY_CALLS(X) \
  X(cuMemcpy)                   \
  X(cuMemcpyAsync)              \
  X(cuMemcpyHtoD_v2)            \
  X(cuMemcpyDtoH_v2)            \
  X(cuMemcpyAtoH_v2)            \
  X(cuMemcpyHtoDAsync_v2)       \
  X(cuMemcpyDtoHAsync_v2)       \
  X(cuMemcpyDtoD_v2)            \
  X(cuMemcpyDtoDAsync_v2)       \
  X(cuMemcpyPeer)               \
  X(cuMemcpyPeerAsync)          \
  X(cuMemcpyAtoD_v2)            \
  X(cuMemcpy2D_v2)              \
  X(cuMemcpy2DUnaligned_v2)     \
  X(cuMemcpy2DAsync_v2)         \
  X(cuMemcpy3D_v2)              \
  X(cuMemcpy3DAsync_v2)         \
  X(cuMemcpy3DPeer)             \
  X(cuMemcpy3DPeerAsync)        \
  X(cuMemsetD8_v2)              \
  X(cuMemsetD16_v2)             \
  X(cuMemsetD32_v2)             \
  X(cuMemsetD8Async)            \
  X(cuMemsetD16Async)           \
  X(cuMemsetD32Async)           \
  X(cuMemsetD2D8_v2)            \
  X(cuMemsetD2D16_v2)           \
  X(cuMemsetD2D32_v2)           \
  X(cuMemsetD2D8Async)          \
  X(cuMemsetD2D16Async)         \
  X(cuMemsetD2D32Async)         \
  X(cuStreamWriteValue32_v2)    \
  X(cuStreamWriteValue64_v2)

/// X(function): the calls that write several ranges at once.
#define CONVTRACE_COPY_BATCHES(X) \
  X(cuMemcpyBatchAsync_v1)        \
  X(cuMemcpyBatchAsync_v2)        \
  X(cuMemcpy3DBatchAsync_v1)      \
  X(cuMemcpy3DBatchAsync_v2)      \
  X(cuMemBatchDecompressAsync)    \
  X(cuStreamBatchMemOp_v2)        \
  X(cuMemDiscardBatchAsync)       \
  X(cuMemDiscardAndPrefetchBatchAsync)

#define CONVTRACE_X(function) MemoryChange decode_##function(const void* params) noexcept;
CONVTRACE_COPY_CALLS(CONVTRACE_X)
#undef CONVTRACE_X

#define CONVTRACE_X(function)                           \
  size_t count_##function(const void* params) noexcept; \
  MemoryChange decode_##function(const void* params, size_t index) noexcept;
CONVTRACE_COPY_BATCHES(CONVTRACE_X)
#undef CONVTRACE_X

}  // namespace convtrace::cupti

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

/// X(how, function): each decoder takes a pointer to the `<function>_params` struct; `how` is a macro
/// of callback_table.cpp, which makes its row.
#define CONVTRACE_COPY_CALLS(X)             \
  X(AT_EXIT_SYNC, cuMemcpy)                 \
  X(AT_EXIT_ASYNC, cuMemcpyAsync)           \
  X(AT_EXIT_SYNC, cuMemcpyHtoD_v2)          \
  X(AT_EXIT_SYNC, cuMemcpyDtoH_v2)          \
  X(AT_EXIT_SYNC, cuMemcpyAtoH_v2)          \
  X(AT_EXIT_ASYNC, cuMemcpyHtoDAsync_v2)    \
  X(AT_EXIT_ASYNC, cuMemcpyDtoHAsync_v2)    \
  X(AT_EXIT_SYNC, cuMemcpyDtoD_v2)          \
  X(AT_EXIT_ASYNC, cuMemcpyDtoDAsync_v2)    \
  X(AT_EXIT_SYNC, cuMemcpyPeer)             \
  X(AT_EXIT_ASYNC, cuMemcpyPeerAsync)       \
  X(AT_EXIT_SYNC, cuMemcpyAtoD_v2)          \
  X(AT_EXIT_SYNC, cuMemcpy2D_v2)            \
  X(AT_EXIT_SYNC, cuMemcpy2DUnaligned_v2)   \
  X(AT_EXIT_ASYNC, cuMemcpy2DAsync_v2)      \
  X(AT_EXIT_SYNC, cuMemcpy3D_v2)            \
  X(AT_EXIT_ASYNC, cuMemcpy3DAsync_v2)      \
  X(AT_EXIT_SYNC, cuMemcpy3DPeer)           \
  X(AT_EXIT_ASYNC, cuMemcpy3DPeerAsync)     \
  X(AT_EXIT_SYNC, cuMemsetD8_v2)            \
  X(AT_EXIT_SYNC, cuMemsetD16_v2)           \
  X(AT_EXIT_SYNC, cuMemsetD32_v2)           \
  X(AT_EXIT_ASYNC, cuMemsetD8Async)         \
  X(AT_EXIT_ASYNC, cuMemsetD16Async)        \
  X(AT_EXIT_ASYNC, cuMemsetD32Async)        \
  X(AT_EXIT_SYNC, cuMemsetD2D8_v2)          \
  X(AT_EXIT_SYNC, cuMemsetD2D16_v2)         \
  X(AT_EXIT_SYNC, cuMemsetD2D32_v2)         \
  X(AT_EXIT_ASYNC, cuMemsetD2D8Async)       \
  X(AT_EXIT_ASYNC, cuMemsetD2D16Async)      \
  X(AT_EXIT_ASYNC, cuMemsetD2D32Async)      \
  X(AT_EXIT_ASYNC, cuStreamWriteValue32_v2) \
  X(AT_EXIT_ASYNC, cuStreamWriteValue64_v2)

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

#define CONVTRACE_X(how, function) MemoryChange decode_##function(const void* params) noexcept;
CONVTRACE_COPY_CALLS(CONVTRACE_X)
#undef CONVTRACE_X

#define CONVTRACE_X(function)                           \
  size_t count_##function(const void* params) noexcept; \
  MemoryChange decode_##function(const void* params, size_t index) noexcept;
CONVTRACE_COPY_BATCHES(CONVTRACE_X)
#undef CONVTRACE_X

}  // namespace convtrace::cupti

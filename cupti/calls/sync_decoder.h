#pragma once
/// @file sync_decoder.h
/// Decodes the driver calls that order work (events, streams, waits of the host) into a SyncChange.
///
/// Place:    gets the parameter structs that CUPTI delivers (generated_cuda_meta.h), after the call
///           succeeded; for a call that destroys an object, at its entry.
/// Threads:  pure functions.
/// Source:   cuda.h, sections "Event Management", "Stream Management", "Context Management".

#include <cuda.h>

#include <cstdint>

#include "format/model/events.h"

namespace convtrace::cupti {

struct SyncChange {
  format::SyncKind kind = format::SyncKind::kEventRecord;
  CUstream stream = nullptr;
  /// Null: something other than a known event orders the work.
  CUevent event = nullptr;
  uint32_t flags = 0;           ///< kStreamCreate: the stream's flags
  CUcontext context = nullptr;  ///< as the call names it; null: the current one
};

/// X(function): each decoder takes a pointer to the `<function>_params` struct.
#define CONVTRACE_SYNC_CALLS(X)    \
  X(cuEventCreate)                 \
  X(cuIpcOpenEventHandle)          \
  X(cuEventDestroy_v2)             \
  X(cuEventRecord)                 \
  X(cuEventRecordWithFlags)        \
  X(cuEventSynchronize)            \
  X(cuEventQuery)                  \
  X(cuEventElapsedTime_v2)         \
  X(cuStreamWaitEvent)             \
  X(cuStreamWaitValue32_v2)        \
  X(cuStreamWaitValue64_v2)        \
  X(cuWaitExternalSemaphoresAsync) \
  X(cuLaunchHostFunc)              \
  X(cuStreamAddCallback)           \
  X(cuStreamCreate)                \
  X(cuStreamCreateWithPriority)    \
  X(cuGreenCtxStreamCreate)        \
  X(cuStreamDestroy_v2)            \
  X(cuStreamSynchronize)           \
  X(cuStreamQuery)                 \
  X(cuCtxRecordEvent)              \
  X(cuGreenCtxRecordEvent)         \
  X(cuCtxWaitEvent)                \
  X(cuGreenCtxWaitEvent)           \
  X(cuCtxSynchronize)              \
  X(cuCtxSynchronize_v2)

#define CONVTRACE_X(function) SyncChange decode_##function(const void* params) noexcept;
CONVTRACE_SYNC_CALLS(CONVTRACE_X)
#undef CONVTRACE_X

}  // namespace convtrace::cupti

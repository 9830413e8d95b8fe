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

/// X(how, function): each decoder takes a pointer to the `<function>_params` struct; `how` is a macro
/// of callback_table.cpp, which makes its row.
#define CONVTRACE_SYNC_CALLS(X)                 \
  X(SYNC, cuEventCreate)                        \
  X(SYNC, cuIpcOpenEventHandle)                 \
  X(SYNC_END, cuEventDestroy_v2)                \
  X(SYNC_STREAM, cuEventRecord)                 \
  X(SYNC_STREAM, cuEventRecordWithFlags)        \
  X(SYNC, cuEventSynchronize)                   \
  X(SYNC, cuEventQuery)                         \
  X(SYNC, cuEventElapsedTime_v2)                \
  X(SYNC_STREAM, cuStreamWaitEvent)             \
  X(SYNC_STREAM, cuStreamWaitValue32_v2)        \
  X(SYNC_STREAM, cuStreamWaitValue64_v2)        \
  X(SYNC_STREAM, cuWaitExternalSemaphoresAsync) \
  X(SYNC_STREAM, cuLaunchHostFunc)              \
  X(SYNC_STREAM, cuStreamAddCallback)           \
  X(SYNC, cuStreamCreate)                       \
  X(SYNC, cuStreamCreateWithPriority)           \
  X(SYNC, cuGreenCtxStreamCreate)               \
  X(SYNC_END, cuStreamDestroy_v2)               \
  X(SYNC_STREAM, cuStreamSynchronize)           \
  X(SYNC_STREAM, cuStreamQuery)                 \
  X(SYNC, cuCtxRecordEvent)                     \
  X(SYNC, cuGreenCtxRecordEvent)                \
  X(SYNC, cuCtxWaitEvent)                       \
  X(SYNC, cuGreenCtxWaitEvent)                  \
  X(SYNC, cuCtxSynchronize)                     \
  X(SYNC, cuCtxSynchronize_v2)

#define CONVTRACE_X(how, function) SyncChange decode_##function(const void* params) noexcept;
CONVTRACE_SYNC_CALLS(CONVTRACE_X)
#undef CONVTRACE_X

}  // namespace convtrace::cupti

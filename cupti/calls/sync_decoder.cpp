#include "cupti/calls/sync_decoder.h"

#include <cupti.h>

namespace convtrace::cupti {

using format::SyncKind;

#define CONVTRACE_DECODE(function, ...)                                              \
  SyncChange decode_##function(const void* params) noexcept {                        \
    [[maybe_unused]] const auto& p = *static_cast<const function##_params*>(params); \
    return __VA_ARGS__;                                                              \
  }

CONVTRACE_DECODE(cuEventCreate, {SyncKind::kEventCreate, nullptr, *p.phEvent, p.Flags})
CONVTRACE_DECODE(cuIpcOpenEventHandle,
                 {SyncKind::kEventCreate, nullptr, *p.phEvent, CU_EVENT_INTERPROCESS})
CONVTRACE_DECODE(cuEventDestroy_v2, {SyncKind::kEventDestroy, nullptr, p.hEvent})
CONVTRACE_DECODE(cuEventRecord, {SyncKind::kEventRecord, p.hStream, p.hEvent})
CONVTRACE_DECODE(cuEventRecordWithFlags, {SyncKind::kEventRecord, p.hStream, p.hEvent})
CONVTRACE_DECODE(cuEventSynchronize, {SyncKind::kEventDone, nullptr, p.hEvent})
CONVTRACE_DECODE(cuEventQuery, {SyncKind::kEventDone, nullptr, p.hEvent})
// The call fails unless both events have happened.
CONVTRACE_DECODE(cuEventElapsedTime_v2, {SyncKind::kEventDone, nullptr, p.hEnd})
CONVTRACE_DECODE(cuStreamWaitEvent, {SyncKind::kStreamWait, p.hStream, p.hEvent})
CONVTRACE_DECODE(cuStreamWaitValue32_v2, {SyncKind::kStreamWait, p.stream})
CONVTRACE_DECODE(cuStreamWaitValue64_v2, {SyncKind::kStreamWait, p.stream})
CONVTRACE_DECODE(cuWaitExternalSemaphoresAsync, {SyncKind::kStreamWait, p.stream})
// The host will learn at an unknown time that earlier work is done.
CONVTRACE_DECODE(cuLaunchHostFunc, {SyncKind::kEventDone, p.hStream})
CONVTRACE_DECODE(cuStreamAddCallback, {SyncKind::kEventDone, p.hStream})
CONVTRACE_DECODE(cuStreamCreate, {SyncKind::kStreamCreate, *p.phStream, nullptr, p.Flags})
CONVTRACE_DECODE(cuStreamCreateWithPriority,
                 {SyncKind::kStreamCreate, *p.phStream, nullptr, p.flags})
CONVTRACE_DECODE(cuGreenCtxStreamCreate, {SyncKind::kStreamCreate, *p.phStream, nullptr, p.flags})
CONVTRACE_DECODE(cuStreamDestroy_v2, {SyncKind::kStreamDestroy, p.hStream})
CONVTRACE_DECODE(cuStreamSynchronize, {SyncKind::kStreamDone, p.hStream})
CONVTRACE_DECODE(cuStreamQuery, {SyncKind::kStreamDone, p.hStream})
// These concern all streams of a context, which are not known one by one. So a recorded event
// orders more than is known, like an event that another process records; and a wait is recorded as
// one for more than it is, because recording less would lead to false accusations.
CONVTRACE_DECODE(cuCtxRecordEvent,
                 {SyncKind::kEventCreate, nullptr, p.hEvent, CU_EVENT_INTERPROCESS})
CONVTRACE_DECODE(cuGreenCtxRecordEvent,
                 {SyncKind::kEventCreate, nullptr, p.hEvent, CU_EVENT_INTERPROCESS})
CONVTRACE_DECODE(cuCtxWaitEvent, {SyncKind::kContextDone, nullptr, nullptr, 0, p.hCtx})
CONVTRACE_DECODE(cuGreenCtxWaitEvent, {SyncKind::kContextDone})
CONVTRACE_DECODE(cuCtxSynchronize_v2, {SyncKind::kContextDone, nullptr, nullptr, 0, p.ctx})

/// The call has no parameters, and so no struct of parameters.
SyncChange decode_cuCtxSynchronize(const void*) noexcept { return {SyncKind::kContextDone}; }

#undef CONVTRACE_DECODE

}  // namespace convtrace::cupti

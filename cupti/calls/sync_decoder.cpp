#include "cupti/calls/sync_decoder.h"

#include <cupti.h>

namespace convtrace::cupti {

using Kind = format::SyncKind;

#define CONVTRACE_DECODE(function, ...)                                              \
  SyncChange decode_##function(const void* params) noexcept {                        \
    [[maybe_unused]] const auto& p = *static_cast<const function##_params*>(params); \
    return __VA_ARGS__;                                                              \
  }

CONVTRACE_DECODE(cuEventCreate, {Kind::kEventCreate, nullptr, *p.phEvent, p.Flags})
CONVTRACE_DECODE(cuIpcOpenEventHandle,
                 {Kind::kEventCreate, nullptr, *p.phEvent, CU_EVENT_INTERPROCESS})
CONVTRACE_DECODE(cuEventDestroy_v2, {Kind::kEventDestroy, nullptr, p.hEvent})
CONVTRACE_DECODE(cuEventRecord, {Kind::kEventRecord, p.hStream, p.hEvent})
CONVTRACE_DECODE(cuEventRecordWithFlags, {Kind::kEventRecord, p.hStream, p.hEvent})
CONVTRACE_DECODE(cuEventSynchronize, {Kind::kEventDone, nullptr, p.hEvent})
CONVTRACE_DECODE(cuEventQuery, {Kind::kEventDone, nullptr, p.hEvent})
// The call fails unless both events have happened.
CONVTRACE_DECODE(cuEventElapsedTime_v2, {Kind::kEventDone, nullptr, p.hEnd})
CONVTRACE_DECODE(cuStreamWaitEvent, {Kind::kStreamWait, p.hStream, p.hEvent})
CONVTRACE_DECODE(cuStreamWaitValue32_v2, {Kind::kStreamWait, p.stream})
CONVTRACE_DECODE(cuStreamWaitValue64_v2, {Kind::kStreamWait, p.stream})
CONVTRACE_DECODE(cuWaitExternalSemaphoresAsync, {Kind::kStreamWait, p.stream})
// The host will learn that earlier work is done, at a time that is not seen.
CONVTRACE_DECODE(cuLaunchHostFunc, {Kind::kEventDone, p.hStream})
CONVTRACE_DECODE(cuStreamAddCallback, {Kind::kEventDone, p.hStream})
CONVTRACE_DECODE(cuStreamCreate, {Kind::kStreamCreate, *p.phStream, nullptr, p.Flags})
CONVTRACE_DECODE(cuStreamCreateWithPriority, {Kind::kStreamCreate, *p.phStream, nullptr, p.flags})
CONVTRACE_DECODE(cuGreenCtxStreamCreate, {Kind::kStreamCreate, *p.phStream, nullptr, p.flags})
CONVTRACE_DECODE(cuStreamDestroy_v2, {Kind::kStreamDestroy, p.hStream})
CONVTRACE_DECODE(cuStreamSynchronize, {Kind::kStreamDone, p.hStream})
CONVTRACE_DECODE(cuStreamQuery, {Kind::kStreamDone, p.hStream})
// These concern all streams of a context, which are not known one by one. So a recorded event
// orders more than is known, like an event that another process records; and a wait is recorded as
// one for more than it is, because recording less would lead to false accusations.
CONVTRACE_DECODE(cuCtxRecordEvent, {Kind::kEventCreate, nullptr, p.hEvent, CU_EVENT_INTERPROCESS})
CONVTRACE_DECODE(cuGreenCtxRecordEvent,
                 {Kind::kEventCreate, nullptr, p.hEvent, CU_EVENT_INTERPROCESS})
CONVTRACE_DECODE(cuCtxWaitEvent, {Kind::kContextDone, nullptr, nullptr, 0, p.hCtx})
CONVTRACE_DECODE(cuGreenCtxWaitEvent, {Kind::kContextDone})
CONVTRACE_DECODE(cuCtxSynchronize_v2, {Kind::kContextDone, nullptr, nullptr, 0, p.ctx})

/// The call has no parameters, and so no struct of parameters.
SyncChange decode_cuCtxSynchronize(const void*) noexcept { return {Kind::kContextDone}; }

#undef CONVTRACE_DECODE

}  // namespace convtrace::cupti

#pragma once
/// @file memory_gate.h
/// Handles the calls that allocate and free memory of the driver where CONVTRACE_POISON or
/// CONVTRACE_QUARANTINE is on.
///
/// Place:    called by interceptor.cpp; calls quarantine.h.
/// Threads:  any, ordinary code of the program's calls.
/// Source:   hooks_v1.h

#include <cstdint>

#include "cupti/abi/hooks_v1.h"
#include "cupti/gate/cuda_state.h"
#include "cupti/observe/callback_observer.h"

namespace convtrace::cupti {

/// Passes a call of enum convtrace_memory_call on. @return 1 if a failed allocation should be tried
/// again.
int keep(CudaState& state, convtrace_memory_call call, uint64_t address, uint64_t bytes,
         CUstream stream);

/// Replaces cuMemFree. @return the CUresult for the program.
int free_or_keep(CudaState& state, CallbackObserver& observer, convtrace_cuMemFree_fn real,
                 uint64_t address) noexcept;

}  // namespace convtrace::cupti

#pragma once
/// @file memory_gate.h
/// What happens at the calls that give and take the driver's memory, where CONVTRACE_POISON or
/// CONVTRACE_QUARANTINE is on.
///
/// Place:    called by interceptor.cpp; quarantine.h does it.
/// Threads:  any, ordinary code of the program's calls.
/// Source:   hooks_v1.h

#include <cstdint>

#include "cupti/abi/hooks_v1.h"
#include "cupti/gate/cuda_state.h"
#include "cupti/observe/callback_observer.h"

namespace convtrace::cupti {

/// @return 1 if an allocation that failed is worth another try.
int keep(CudaState& state, convtrace_memory_call call, uint64_t address, uint64_t bytes,
         CUstream stream);

/// Instead of cuMemFree. @return its result.
int free_or_keep(CudaState& state, CallbackObserver& observer, convtrace_cuMemFree_fn real,
                 uint64_t address) noexcept;

}  // namespace convtrace::cupti

#pragma once
/// @file hook.h
/// The interface between the fake libcuda.so.1 and the fake libcupti.so.13: one function that is
/// called for every driver call. libcupti finds the setter in libcuda by name.

#include <cuda.h>

#include <cstdint>

namespace fakecuda {

/// One end of a driver call (site: CUPTI_API_ENTER or CUPTI_API_EXIT) or a resource event.
struct HookCall {
  bool resource = false;
  uint32_t cbid = 0;
  uint32_t site = 0;
  const char* function = nullptr;
  const void* params = nullptr;
  CUresult* result = nullptr;
  const char* symbol = nullptr;
  CUcontext context = nullptr;
  uint32_t context_uid = 0;
  uint64_t* correlation = nullptr;
  void* descriptor = nullptr;  ///< of a resource event
};

using Hook = void (*)(const HookCall& call);

/// Null removes the hook.
using SetHook = void (*)(Hook hook);
inline constexpr const char* kSetHookSymbol = "fakecuda_set_hook";

/// Device of a context, -1 if there is no such context.
using DeviceOf = int (*)(CUcontext context);
inline constexpr const char* kDeviceOfSymbol = "fakecuda_device_of";

/// @return the number of kernels that the calling thread was the first to launch. A real driver may
/// load a kernel then, and allocate local memory for it, which waits for the device.
extern "C" uint64_t fakecuda_first_launches();
/// @return the number of launches of kernels in the process.
extern "C" uint64_t fakecuda_launches();

/// From now on the stream holds all its work until a caller waits for it or releases it. Then it
/// runs all of it, and after a wait it holds again.
extern "C" void fakecuda_hold(CUstream stream);
extern "C" void fakecuda_release(CUstream stream);

/// From now on, with a seed, streams share this many connections to the device (scheduler.h).
extern "C" void fakecuda_connections(uint64_t count);

}  // namespace fakecuda

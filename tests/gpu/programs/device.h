#pragma once
/// @file device.h
/// What the programs of gpu-check share: ending with a reason, and the first device.

#include <cuda.h>

#include <cstdio>
#include <cstdlib>

namespace convtrace::gpu {

inline constexpr int kNoDevice = 77;  ///< exit code: there is nothing to run on

/// Ends the program unless `result` is success.
inline void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "%s: %s\n", what, name == nullptr ? "unknown error" : name);
  std::exit(1);
}

/// Starts the driver. Ends the program with kNoDevice where there is no device.
inline void start_driver() {
  int devices = 0;
  if (cuInit(0) == CUDA_SUCCESS && cuDeviceGetCount(&devices) == CUDA_SUCCESS && devices > 0)
    return;
  std::fprintf(stderr, "no CUDA device\n");
  std::exit(kNoDevice);
}

/// Device 0 with its primary context, made current.
struct Device {
  Device() {
    check(cuDeviceGetName(name, sizeof name, 0), "cuDeviceGetName");
    check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  }
  char name[256] = {};
  CUcontext context = nullptr;
};

}  // namespace convtrace::gpu

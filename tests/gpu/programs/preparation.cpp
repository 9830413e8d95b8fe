/// A program whose first launches come while its context is prepared for statistics and the device
/// is busy with a kernel that nobody waits for.
///
/// usage: gpu_preparation
///
/// One stream runs a kernel of half a second; another gets a launch each millisecond for a second
/// and a half. Prints one JSON object: launches, host time of the longest in ms, time of
/// all in ms, free memory of the device at the end. Exit code 77: no device.

#include <cuda.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/gpu/programs/device.h"
#include "tests/gpu/programs/image.h"

namespace {

using convtrace::gpu::check;
using Clock = std::chrono::steady_clock;

constexpr int kLaunches = 1500;
constexpr unsigned kCount = 4096;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Stream {
  Stream() { check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate"); }
  CUstream stream = nullptr;
};

}  // namespace

int main() {
  convtrace::gpu::start_driver();
  const convtrace::gpu::Device device;
  CUmodule module = nullptr;
  CUfunction mix = nullptr, spin = nullptr;
  check(cuModuleLoadData(&module, convtrace::gpu::kernel_image(device.name)), "cuModuleLoadData");
  check(cuModuleGetFunction(&mix, module, "gpu_check_mix"), "cuModuleGetFunction");
  check(cuModuleGetFunction(&spin, module, "gpu_check_spin"), "cuModuleGetFunction");
  const Stream busy, ours;
  CUdeviceptr data = 0, out = 0;
  check(cuMemAlloc(&data, kCount * sizeof(float)), "cuMemAlloc");
  check(cuMemAlloc(&out, kCount * sizeof(float)), "cuMemAlloc");
  check(cuMemsetD8(data, 0, kCount * sizeof(float)), "cuMemsetD8");

  unsigned long long spin_ns = 500'000'000;
  void* spin_params[] = {&spin_ns};
  const Clock::time_point start = Clock::now();
  check(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, busy.stream, spin_params, nullptr), "launch");
  double longest_ms = 0;
  for (int i = 0; i < kLaunches; ++i) {
    float x = 1, y = 2, z = 3;
    unsigned count = kCount;
    void* params[] = {&data, &data, &data, &out, &x, &y, &z, &count};
    const Clock::time_point before = Clock::now();
    check(cuLaunchKernel(mix, kCount / 256, 1, 1, 256, 1, 1, 0, ours.stream, params, nullptr),
          "launch");
    longest_ms = std::max(longest_ms, ms_since(before));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  size_t free_bytes = 0, all_bytes = 0;
  check(cuMemGetInfo(&free_bytes, &all_bytes), "cuMemGetInfo");
  std::printf(
      "{\"launches\": %d, \"longest_launch_ms\": %.3f, \"all_ms\": %.1f, \"free_bytes\": %zu}\n",
      kLaunches + 1, longest_ms, ms_since(start), free_bytes);
  return 0;
}

/// A program for the CUDA driver of which it is known what its kernels write.
///
/// usage: gpu_outputs
///
/// Launches gpu_check_mix (three inputs, one output) and gpu_check_swap (both pointers of a struct)
/// in turns, each time with other values, after a pause in which a context can be prepared. Prints
/// one JSON object: device, and by kernel the slots that it writes and how often it was launched.
/// Exit code: 77 no device.

#include <cuda.h>
#include <time.h>

#include <cstdio>
#include <vector>

#include "tests/gpu/programs/device.h"
#include "tests/gpu/programs/image.h"

namespace {

using convtrace::gpu::check;

constexpr unsigned kCount = 4096;
constexpr int kRounds = 100;

CUdeviceptr make_buffer(float first) {
  CUdeviceptr address = 0;
  std::vector<float> values(kCount);
  for (unsigned i = 0; i < kCount; ++i) values[i] = first + static_cast<float>(i);
  check(cuMemAlloc(&address, kCount * sizeof(float)), "cuMemAlloc");
  check(cuMemcpyHtoD(address, values.data(), kCount * sizeof(float)), "cuMemcpyHtoD");
  return address;
}

void launch(CUfunction function, void** params) {
  check(cuLaunchKernel(function, kCount / 256, 1, 1, 256, 1, 1, 0, nullptr, params, nullptr),
        "launch");
}

}  // namespace

int main() {
  convtrace::gpu::start_driver();
  const convtrace::gpu::Device device;
  CUmodule module = nullptr;
  CUfunction mix = nullptr, swap = nullptr;
  check(cuModuleLoadData(&module, convtrace::gpu::kernel_image(device.name)), "cuModuleLoadData");
  check(cuModuleGetFunction(&mix, module, "gpu_check_mix"), "cuModuleGetFunction");
  check(cuModuleGetFunction(&swap, module, "gpu_check_swap"), "cuModuleGetFunction");

  CUdeviceptr a = make_buffer(1), b = make_buffer(2), c = make_buffer(3), out = make_buffer(4);
  struct {
    CUdeviceptr first, second;
  } pair = {make_buffer(5), make_buffer(6)};
  unsigned count = kCount;
  const timespec pause = {3, 0};
  nanosleep(&pause, nullptr);
  for (int i = 0; i < kRounds; ++i) {
    float x = static_cast<float>(i), y = 2, z = 3;
    void* mix_params[] = {&a, &b, &c, &out, &x, &y, &z, &count};
    void* swap_params[] = {&pair, &count};
    launch(mix, mix_params);
    launch(swap, swap_params);
  }
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  std::printf(
      "{\"device\": \"%s\", \"launches\": %d, \"outputs\": {\"gpu_check_mix\": [\"arg:3\"], "
      "\"gpu_check_swap\": [\"arg:0\", \"arg:0+8\"]}}\n",
      device.name, kRounds);
  return 0;
}

#include "cupti/calls/launch_decoder.h"

#include <cupti.h>

#include <algorithm>

namespace convtrace::cupti {
namespace {

template <typename Params>
void copy_shape(const Params& p, LaunchInfo& launch) noexcept {
  launch.grid[0] = p.gridDimX;
  launch.grid[1] = p.gridDimY;
  launch.grid[2] = p.gridDimZ;
  launch.block[0] = p.blockDimX;
  launch.block[1] = p.blockDimY;
  launch.block[2] = p.blockDimZ;
  launch.shared_bytes = p.sharedMemBytes;
  launch.stream = p.hStream;
}

LaunchInfo launch_of_grid(CUfunction function, int width, int height, CUstream stream) noexcept {
  LaunchInfo launch;
  launch.function = function;
  launch.grid[0] = static_cast<uint32_t>(width);
  launch.grid[1] = static_cast<uint32_t>(height);
  launch.grid[2] = 1;
  launch.stream = stream;
  return launch;
}

}  // namespace

LaunchInfo decode_cuLaunchKernel(const void* params) noexcept {
  const auto& p = *static_cast<const cuLaunchKernel_params*>(params);
  LaunchInfo launch;
  copy_shape(p, launch);
  launch.function = p.f;
  launch.params = p.kernelParams;
  launch.extra = p.extra;
  return launch;
}

LaunchInfo decode_cuLaunchKernelEx(const void* params) noexcept {
  const auto& p = *static_cast<const cuLaunchKernelEx_params*>(params);
  LaunchInfo launch;
  if (p.config != nullptr) copy_shape(*p.config, launch);
  launch.function = p.f;
  launch.params = p.kernelParams;
  launch.extra = p.extra;
  return launch;
}

LaunchInfo decode_cuLaunchCooperativeKernel(const void* params) noexcept {
  const auto& p = *static_cast<const cuLaunchCooperativeKernel_params*>(params);
  LaunchInfo launch;
  copy_shape(p, launch);
  launch.function = p.f;
  launch.params = p.kernelParams;
  return launch;
}

LaunchInfo decode_cuGraphLaunch(const void* params) noexcept {
  const auto& p = *static_cast<const cuGraphLaunch_params*>(params);
  LaunchInfo launch;
  launch.graph = p.hGraph;
  launch.stream = p.hStream;
  return launch;
}

LaunchInfo decode_cuLaunch(const void* params) noexcept {
  LaunchInfo launch;
  launch.function = static_cast<const cuLaunch_params*>(params)->f;
  std::fill_n(launch.grid, 3, 1U);
  return launch;
}

LaunchInfo decode_cuLaunchGrid(const void* params) noexcept {
  const auto& p = *static_cast<const cuLaunchGrid_params*>(params);
  return launch_of_grid(p.f, p.grid_width, p.grid_height, nullptr);
}

LaunchInfo decode_cuLaunchGridAsync(const void* params) noexcept {
  const auto& p = *static_cast<const cuLaunchGridAsync_params*>(params);
  return launch_of_grid(p.f, p.grid_width, p.grid_height, p.hStream);
}

size_t count_cuLaunchCooperativeKernelMultiDevice(const void* params) noexcept {
  const auto& p = *static_cast<const cuLaunchCooperativeKernelMultiDevice_params*>(params);
  return p.launchParamsList != nullptr ? p.numDevices : 0;
}

LaunchInfo decode_cuLaunchCooperativeKernelMultiDevice(const void* params, size_t index) noexcept {
  const auto& p = *static_cast<const cuLaunchCooperativeKernelMultiDevice_params*>(params);
  const CUDA_LAUNCH_PARAMS& one = p.launchParamsList[index];
  LaunchInfo launch;
  copy_shape(one, launch);
  launch.function = one.function;
  launch.params = one.kernelParams;
  return launch;
}

LaunchParams::LaunchParams(const LaunchInfo& launch) noexcept : params_(launch.params) {
  if (params_ != nullptr || launch.extra == nullptr) return;
  constexpr size_t kMaxEntries = 16;  // there are two kinds of entries; a longer list is invalid
  for (size_t i = 0; i < kMaxEntries && launch.extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (launch.extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer_ = static_cast<const std::byte*>(launch.extra[i + 1]);
    if (launch.extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE && launch.extra[i + 1] != nullptr)
      buffer_bytes_ = *static_cast<const size_t*>(launch.extra[i + 1]);
  }
  if (buffer_ == nullptr) buffer_bytes_ = 0;
}

}  // namespace convtrace::cupti

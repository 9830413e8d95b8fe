#include "cupti/launch_decoder.h"

#include <cupti.h>

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

LaunchParams::LaunchParams(const LaunchInfo& launch) noexcept : params_(launch.params) {
  if (params_ != nullptr || launch.extra == nullptr) return;
  constexpr size_t kMaxEntries =
      16;  // the list has two kinds of entries; a longer one is not a list
  for (size_t i = 0; i < kMaxEntries && launch.extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
    if (launch.extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
      buffer_ = static_cast<const std::byte*>(launch.extra[i + 1]);
    if (launch.extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
      buffer_bytes_ = *static_cast<const size_t*>(launch.extra[i + 1]);
  }
  if (buffer_ == nullptr) buffer_bytes_ = 0;
}

std::span<const std::byte> LaunchParams::bytes_of(size_t index, size_t offset,
                                                  size_t bytes) const noexcept {
  if (params_ != nullptr) {
    if (params_[index] == nullptr) return {};
    return {static_cast<const std::byte*>(params_[index]), bytes};
  }
  if (offset > buffer_bytes_ || bytes > buffer_bytes_ - offset) return {};
  return {buffer_ + offset, bytes};
}

}  // namespace convtrace::cupti

#pragma once
/// @file launch_decoder.h
/// Decodes every kind of kernel launch into one struct, LaunchInfo.
///
/// Place:    callbacks pass the parameter structs of CUPTI's generated_cuda_meta.h, the gate passes
///           its own.
/// Threads:  pure functions.
/// Source:   generated_cuda_meta.h; cuda.h, cuLaunchKernel ("extra").

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace convtrace::cupti {

struct LaunchInfo {
  CUfunction function = nullptr;  ///< may be a CUkernel cast to CUfunction; null: a graph
  CUgraphExec graph = nullptr;    ///< the graph of a graph launch; else null
  uint32_t grid[3] = {0, 0, 0};
  uint32_t block[3] = {0, 0, 0};
  uint32_t shared_bytes = 0;
  CUstream stream = nullptr;  ///< as passed
  void** params = nullptr;    ///< one pointer to a value each, borrowed; or null
  void** extra = nullptr;     ///< CU_LAUNCH_PARAM_* list, borrowed; or null
};

/// Each takes a pointer to the `<function>_params` struct of its name. The `_ptsz` variants have
/// the same layout.
LaunchInfo decode_cuLaunchKernel(const void* params) noexcept;
LaunchInfo decode_cuLaunchKernelEx(const void* params) noexcept;
LaunchInfo decode_cuLaunchCooperativeKernel(const void* params) noexcept;
LaunchInfo decode_cuGraphLaunch(const void* params) noexcept;

/// cuLaunch and its kin take block size, parameters and (cuLaunch) grid from earlier calls, so
/// these are not known here.
LaunchInfo decode_cuLaunch(const void* params) noexcept;
LaunchInfo decode_cuLaunchGrid(const void* params) noexcept;
LaunchInfo decode_cuLaunchGridAsync(const void* params) noexcept;

/// The call makes one launch on each of several devices.
size_t count_cuLaunchCooperativeKernelMultiDevice(const void* params) noexcept;
LaunchInfo decode_cuLaunchCooperativeKernelMultiDevice(const void* params, size_t index) noexcept;

/// @return the stream that the driver means by `stream`: a 0 in a per-thread entry point is
/// CU_STREAM_PER_THREAD.
inline CUstream effective_stream(CUstream stream, bool per_thread) noexcept {
  return stream == nullptr && per_thread ? CU_STREAM_PER_THREAD : stream;
}

/// The parameters of a launch, wherever its caller put them.
class LaunchParams {
 public:
  explicit LaunchParams(const LaunchInfo& launch) noexcept;

  /// @param index position of the parameter. @param offset, @param bytes its place in the
  /// parameter buffer.
  /// @return its bytes, valid as long as the caller's arguments; empty when it is not there.
  [[nodiscard]] std::span<const std::byte> bytes_of(size_t index, size_t offset,
                                                    size_t bytes) const noexcept {
    if (params_ != nullptr) {
      if (params_[index] == nullptr) return {};
      return {static_cast<const std::byte*>(params_[index]), bytes};
    }
    if (offset > buffer_bytes_ || bytes > buffer_bytes_ - offset) return {};
    return {buffer_ + offset, bytes};
  }

 private:
  void** params_;
  const std::byte* buffer_ = nullptr;
  size_t buffer_bytes_ = 0;
};

}  // namespace convtrace::cupti

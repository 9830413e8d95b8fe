#pragma once
/// @file sampler.h
/// Statistics of what a tagged kernel wrote: finds the buffers before the launch, queues the work
/// behind it.
///
/// Place:    used by the gate around the real call, in ordinary code of the calling thread.
/// Threads:  any; one Sampler value belongs to one launch.
/// Errors:   whatever prevents it is a NotSampled and a counted loss.
/// Source:   docs/design.md "Rules for our own GPU work".

#include <vector>

#include "cupti/cuda_state.h"
#include "cupti/launch_decoder.h"

namespace convtrace::cupti {

/// @return kSampled if work for `context` may be put on `stream` now.
[[nodiscard]] format::NotSampled can_launch(const CudaState& state, CUcontext context,
                                            CUstream stream) noexcept;

class Sampler {
 public:
  /// Collects the outputs that the rules of `function` ask for at `position`. Addresses are read
  /// now: the program may reuse the arguments once the call has returned.
  Sampler(CudaState& state, const LaunchInfo& launch, const FunctionInfo& function,
          const Position& position, uint8_t device);

  /// To be called after the launch succeeded.
  [[nodiscard]] format::NotSampled submit(CUcontext context, CUstream stream) noexcept;

 private:
  void add(const settings::Rule& rule, uint32_t param, const LaunchInfo& launch,
           const FunctionInfo& function);

  CudaState& state_;
  const Position position_;
  const uint8_t device_;
  bool asked_ = false;
  std::vector<DeviceRequest> requests_;
};

}  // namespace convtrace::cupti

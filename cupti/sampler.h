#pragma once
/// @file sampler.h
/// Statistics of what tagged kernels wrote: finds the buffers, queues the work behind the launch.
///
/// Place:    used by the gate around the real call, in ordinary code of the calling thread.
/// Threads:  any; one Sampler value belongs to one launch of the program.
/// Errors:   whatever prevents it is a NotSampled and a counted loss.
/// Source:   docs/design.md "Rules for our own GPU work".

#include <vector>

#include "cupti/cuda_state.h"
#include "cupti/launch_decoder.h"

namespace convtrace::cupti {

/// @return kSampled if work for `context` may be put on `stream` now.
[[nodiscard]] format::NotSampled can_launch(const CudaState& state, CUcontext context,
                                            CUstream stream) noexcept;

/// Whether a kernel on `device` may read that memory for certain: a kernel of the program may be
/// given any address that it does not use. Memory of another device may not be mapped for it, a
/// plain block of the host is not, and what is behind a multicast address cannot be read there.
[[nodiscard]] bool is_readable(const MemoryRange& range, uint8_t device) noexcept;

/// @return whether `rule` asks for values at that step.
[[nodiscard]] bool asks_now(const settings::Rule& rule, const Position& position) noexcept;

class Sampler {
 public:
  Sampler(CudaState& state, const Position& position, uint8_t device)
      : state_(state), position_(position), device_(device) {}

  /// Collects the outputs that the rules of `function` ask for. Addresses are read now: the program
  /// may reuse the arguments once its call has returned.
  void collect(const LaunchInfo& launch, const FunctionInfo& function);
  /// The same for a launch that is captured: a replay decides whether its step is asked for.
  void collect_for_replays(const LaunchInfo& launch, const FunctionInfo& function);

  /// @return how many values were collected.
  [[nodiscard]] size_t count() const noexcept { return requests_.size(); }

  /// Of several kernels that ran as one, those that wrote a buffer before the last one did.
  void keep_last_of_each_buffer();

  /// To be called after the launch was captured: its values come with each launch of the graph.
  void capture(CUcontext context, CUstream stream);

  /// To be called after the launch succeeded.
  [[nodiscard]] format::NotSampled submit(CUcontext context, CUstream stream) noexcept;

 private:
  template <typename Wanted>
  void collect_if(const LaunchInfo& launch, const FunctionInfo& function, Wanted wanted);
  void add(const settings::Rule& rule, uint32_t param, const LaunchInfo& launch,
           const FunctionInfo& function);

  CudaState& state_;
  const Position position_;
  const uint8_t device_;
  bool asked_ = false;
  std::vector<DeviceRequest> requests_;
};

}  // namespace convtrace::cupti

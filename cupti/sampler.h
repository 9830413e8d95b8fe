#pragma once
/// @file sampler.h
/// Statistics of what tagged kernels read and wrote: finds the buffers, queues the work in front of
/// the launch and behind it.
///
/// Place:    used by the gate around the real call, in ordinary code of the calling thread.
/// Threads:  any; one Sampler value belongs to one launch of the program.
/// Errors:   whatever prevents it is a NotSampled and a counted loss.
/// Source:   docs/design.md "Rules for our own GPU work".

#include <optional>
#include <span>
#include <string>
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

  enum class Purpose : uint8_t {
    kLaunch,   ///< of this launch, which runs now
    kCapture,  ///< of its replays: each decides whether its step is asked for
    kReplay,   ///< of a graph's launch, in front of which nothing is looked at
  };

  /// Collects what the rules of `function` ask for. Addresses are read now: the program may reuse
  /// the arguments once its call has returned.
  /// @param operands of the launch, as scan_operands() finds them.
  void collect(Purpose purpose, const LaunchInfo& launch, const FunctionInfo& function,
               std::span<const format::Operand> operands);

  /// @return how many values were collected.
  [[nodiscard]] size_t count() const noexcept { return requests_.size(); }

  /// Of several kernels that ran as one, those that wrote a buffer before the last one did.
  void keep_last_of_each_buffer();

  /// To be called right in front of the launch.
  void submit_before(CUcontext context, CUstream stream) noexcept;

  /// To be called after the launch was captured: its values come with each launch of the graph.
  void capture(CUcontext context, CUstream stream);

  /// To be called after the launch succeeded.
  [[nodiscard]] format::NotSampled submit(CUcontext context, CUstream stream) noexcept;

 private:
  /// Memory from an address to the end of its block, or to where another operand begins.
  struct Piece {
    uint64_t address = 0;
    MemoryRange range;
    uint64_t bytes = 0;
  };
  using Operands = std::span<const format::Operand>;

  void find_outputs(Purpose purpose, const settings::Rule& rule, const FunctionInfo& function,
                    Operands operands, size_t first);
  [[nodiscard]] std::optional<Piece> piece_at(uint64_t address) const;
  [[nodiscard]] DeviceRequest make_request(const settings::Rule& rule, const Piece& piece,
                                           const FunctionInfo& function, const std::string& slot);
  void add(const DeviceRequest& request, size_t first);
  void add_inputs(const settings::Rule& rule, const LaunchInfo& launch,
                  const FunctionInfo& function);
  [[nodiscard]] format::NotSampled launch(CUcontext context, std::span<const DeviceRequest> batch,
                                          CUstream stream) noexcept;

  CudaState& state_;
  const Position position_;
  const uint8_t device_;
  bool asked_ = false;
  std::vector<DeviceRequest> before_;  ///< in front of the launch
  std::vector<DeviceRequest> requests_;
  format::NotSampled refused_ = format::NotSampled::kSampled;  ///< what was in front
};

}  // namespace convtrace::cupti

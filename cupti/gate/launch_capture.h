#pragma once
/// @file launch_capture.h
/// Statistics of what tagged kernels read and write: finds the buffers, and queues the statistics
/// work before and after the launch.
///
/// Place:    used by the gate around the real call, in ordinary code of the calling thread.
/// Threads:  any; one LaunchCapture value belongs to one launch of the program.
/// Errors:   whatever prevents it is a SampleOutcome and a counted loss.
/// Source:   docs/gpu-double.md "The rules".

#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "cupti/calls/launch_decoder.h"
#include "cupti/gate/cuda_state.h"

namespace convtrace::cupti {

/// @return kSampled if work for `context` may be put on `stream` now.
[[nodiscard]] format::SampleOutcome can_launch(const CudaState& state, CUcontext context,
                                               CUstream stream) noexcept;

/// Whether a kernel on `device` may read that memory for certain: a kernel of the program may be
/// given any address that it does not use. Memory of another device may not be mapped for it, a
/// plain block of the host is not, and what is behind a multicast address cannot be read there.
[[nodiscard]] bool is_readable(const MemoryRange& range, uint8_t device) noexcept;

class LaunchCapture {
 public:
  /// @param elsewhere  the launch's context may not be the current one.
  LaunchCapture(CudaState& state, const Position& position, uint8_t device, bool elsewhere = false)
      : state_(state), position_(position), device_(device), elsewhere_(elsewhere) {}

  enum class Purpose : uint8_t {
    kLaunch,  ///< of this launch, which runs now
    kReplay,  ///< of a graph's launch: kernel by kernel, in front of and behind the whole graph
  };

  /// Collects what the rules of `function` ask for. Addresses are read now: the program may reuse
  /// the arguments once its call has returned.
  /// @param operands of the launch, as scan_operands() finds them.
  void collect(Purpose purpose, const LaunchInfo& launch, const FunctionInfo& function,
               std::span<const format::Operand> operands);

  /// Notes that a kernel of a graph may write these operands (or any memory). Inputs of the graph's
  /// later kernels that lie there are left out: values are read only before and after the whole
  /// graph, and neither reading shows what such a kernel is given.
  void assume_written(std::span<const format::Operand> operands);
  void assume_all_written() noexcept { all_written_ = true; }
  /// @return the number of inputs that were left out because of assume_written().
  [[nodiscard]] size_t unknown_inputs() const noexcept { return unknown_inputs_; }

  /// Of a graph's requests for the same address, keeps the one of the kernel that runs last.
  void keep_last_of_each_buffer();

  /// To be called right in front of the launch.
  void submit_before(CUcontext context, CUstream stream) noexcept;

  /// To be called after the launch succeeded.
  [[nodiscard]] format::SampleOutcome submit(CUcontext context, CUstream stream) noexcept;

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
  [[nodiscard]] format::SampleOutcome launch(CUcontext context,
                                             std::span<const DeviceRequest> batch,
                                             CUstream stream) noexcept;

  CudaState& state_;
  const Position position_;
  const uint8_t device_;
  const bool elsewhere_;
  bool asked_ = false;
  bool all_written_ = false;
  std::unordered_set<uint64_t> written_;  ///< generations
  size_t unknown_inputs_ = 0;
  std::vector<DeviceRequest> before_;  ///< in front of the launch
  std::vector<DeviceRequest> requests_;
  format::SampleOutcome refused_ = format::SampleOutcome::kSampled;  ///< what was in front
};

}  // namespace convtrace::cupti

#pragma once
/// @file launch_capture.h
/// Captures the values that rules ask for of one launch: finds the buffers that the kernel reads
/// and writes, and queues their statistics before and after the launch.
///
/// Place:    used by the gate around the real call, on the calling thread, outside CUPTI callbacks.
/// Threads:  any; one LaunchCapture value belongs to one launch of the program.
/// Errors:   an obstacle is returned as a SampleOutcome and counted as a loss.
/// Source:   docs/gpu-double.md "The rules".

#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "cupti/calls/launch_decoder.h"
#include "cupti/gate/cuda_state.h"

namespace convtrace::cupti {

/// @return kSampled if convtrace may launch work on `stream` of `context` now, else the obstacle.
[[nodiscard]] format::SampleOutcome can_launch(const CudaState& state, CUcontext context,
                                               CUstream stream) noexcept;

/// @return whether a kernel on `device` may read this memory. A kernel of the program may be passed an
/// address that it does not use, so being an operand proves nothing. Memory of another device may not
/// be mapped, unregistered host memory is not, and memory behind a multicast address cannot be read.
[[nodiscard]] bool is_readable(const MemoryRange& range, uint8_t device) noexcept;

class LaunchCapture {
 public:
  /// @param elsewhere  whether the launch's context may differ from the current one.
  LaunchCapture(CudaState& state, const Position& position, uint8_t device, bool elsewhere = false)
      : state_(state), position_(position), device_(device), elsewhere_(elsewhere) {}

  enum class Purpose : uint8_t {
    kLaunch,  ///< values of a kernel that this launch runs
    kReplay,  ///< values of a kernel of a graph, read before and after the whole graph
  };

  /// Collects the values that the rules of `function` ask for. The arguments are read now, since
  /// the program may reuse their memory when its call has returned.
  /// @param operands of the launch, as scan_operands() finds them.
  /// @param place  of the values, if it is not that of the launch: where the kernel was captured.
  void collect(Purpose purpose, const LaunchInfo& launch, const FunctionInfo& function,
               std::span<const format::Operand> operands,
               const std::optional<format::Place>& place = std::nullopt);

  /// Notes that a kernel of the graph may write these operands, or any memory. Inputs of later
  /// kernels of the graph that lie there are left out: values are read only before and after the
  /// whole graph, and neither shows the input of such a kernel.
  void assume_written(std::span<const format::Operand> operands);
  void assume_all_written() noexcept { all_written_ = true; }
  /// @return the number of inputs that were left out because of assume_written().
  [[nodiscard]] size_t unknown_inputs() const noexcept { return unknown_inputs_; }

  /// Where several kernels of a graph use the same address, keeps the request of the last one.
  void keep_last_of_each_buffer();

  /// Queues the statistics of inputs. Call immediately before the launch.
  void submit_before(CUcontext context, CUstream stream) noexcept;

  /// Queues the statistics of outputs. Call after a launch that succeeded.
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
  /// @param param  the kernel parameter, whose type counts where the rule names none.
  [[nodiscard]] DeviceRequest make_request(const settings::Rule& rule, const Piece& piece,
                                           const FunctionInfo& function, uint32_t param,
                                           format::StringId slot);
  [[nodiscard]] format::StringId slot_of(const FunctionInfo& function, uint32_t param,
                                         uint32_t word) const;
  void add(const DeviceRequest& request, size_t first);
  void add_inputs(const settings::Rule& rule, const LaunchInfo& launch,
                  const FunctionInfo& function);
  [[nodiscard]] format::SampleOutcome launch(CUcontext context,
                                             std::span<const DeviceRequest> batch,
                                             CUstream stream) noexcept;

  CudaState& state_;
  const Position position_;
  format::Place place_;  ///< place of the values that collect() requests
  const uint8_t device_;
  const bool elsewhere_;
  bool asked_ = false;
  bool all_written_ = false;
  std::unordered_set<uint64_t> written_;  ///< generations
  size_t unknown_inputs_ = 0;
  std::vector<DeviceRequest> before_;  ///< to be read before the launch
  std::vector<DeviceRequest> requests_;
  format::SampleOutcome refused_ = format::SampleOutcome::kSampled;  ///< outcome of submit_before()
};

}  // namespace convtrace::cupti

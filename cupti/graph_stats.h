#pragma once
/// @file graph_stats.h
/// Statistics captured with a graph (CONVTRACE_GRAPHS=capture): a node of ours behind each tagged
/// kernel, so that every replay gives the values as that kernel left them.
///
/// A captured node computes nothing: its batch is empty but for the number by which it is known
/// again in the executable graph, whatever copies were made of it. The gate gives it something to
/// do before each launch and takes it back behind; CUDA lets neither touch launches under way. So
/// each replay has result slots of its own, and a launch past the gate finds idle nodes.
///
/// Place:    used by the gate. The nodes show in the program's graph: that is why it is not the
///           default.
/// Threads:  any; CUDA forbids to use one executable graph from two threads at once.
/// Errors:   what cannot be computed is counted as lost; after an error of ours the context gives
///           no more values.
/// Source:   cuda.h, cuGraphExecKernelNodeSetParams.

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>

#include "cupti/address_map.h"
#include "cupti/device_stats.h"
#include "cupti/graph_table.h"

namespace convtrace::cupti {

class GraphStats {
 public:
  /// @param stats, @param addresses, @param sink outlive this.
  GraphStats(DeviceStats& stats, const AddressMap& addresses, format::EventSink& sink)
      : stats_(stats), addresses_(addresses), sink_(sink) {}

  /// Adds a node for each request to what `stream` captures.
  /// @return kCaptured, or why there are no values.
  format::NotSampled capture(CUcontext context, CUstream stream,
                             std::span<const DeviceRequest> requests);

  /// The graph was made or updated: gives its nodes memory to work in.
  void prepare(ExecutableGraph& graph);
  /// It will not be launched again.
  void release(ExecutableGraph& graph) noexcept;

  /// Before a launch: its nodes compute what is asked for at `position` and still has its memory.
  /// @return how many do; those that should and do not are counted.
  size_t arm(CUgraphExec exec, ExecutableGraph& graph, const Position& position);
  /// Behind it. @param launched false: nothing will come.
  void disarm(CUgraphExec exec, ExecutableGraph& graph, bool launched) noexcept;

 private:
  using Value = std::shared_ptr<const NodeValue>;
  [[nodiscard]] uint64_t remember(Value value);
  [[nodiscard]] Value find(uint64_t id) const;
  void lose(uint32_t step, format::LossReason reason, size_t count);

  DeviceStats& stats_;
  const AddressMap& addresses_;
  format::EventSink& sink_;
  mutable std::mutex mutex_;
  std::deque<Value> captured_;  ///< of late, for graphs yet to be made
  uint64_t last_id_ = 0;        ///< of the youngest; numbers begin at 1
};

}  // namespace convtrace::cupti

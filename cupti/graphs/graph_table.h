#pragma once
/// @file graph_table.h
/// The kernels that each executable graph runs, with their parameters and the places where they were
/// captured, kept up to date with every change of the graph.
///
/// Place:    updated by the gate's wrappers after the driver's call, read by the gate at a launch.
/// Threads:  any, concurrently. Asks the driver: never call it from a CUPTI callback.
/// Errors:   nodes that the driver does not describe are counted in `unseen`.
/// Source:   cuda.h: a node of an executable graph is named by the node it was made from.

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cupti/calls/launch_decoder.h"
#include "cupti/driver/api.h"
#include "cupti/kernels/function_table.h"
#include "format/base/mutex.h"
#include "format/model/event_parts.h"

namespace convtrace::cupti {

/// A kernel node. The parameters are copied, because the graph that they come from may be
/// destroyed.
struct GraphKernel {
  CUgraphNode node = nullptr;
  CUgraphNode child = nullptr;  ///< node of the whole graph whose child graph it is in, or null
  CUfunction handle = nullptr;  ///< may be a CUkernel
  const FunctionInfo* function = nullptr;
  uint32_t grid[3] = {0, 0, 0};
  uint32_t block[3] = {0, 0, 0};
  uint32_t shared_bytes = 0;
  bool enabled = true;
  /// Where the program was when the node was captured; none: it was not seen to be captured.
  std::optional<format::Place> place;
  std::vector<std::byte> params;  ///< in the layout of the device
};

struct GraphKernels {
  std::vector<GraphKernel> list;  ///< in the order of the graph's nodes
  /// Nodes whose kernels are not known: conditional nodes, and nodes that the driver does not
  /// describe.
  uint32_t unseen = 0;
  uint32_t memory_nodes = 0;  ///< copies, sets, allocations and frees, whose effect is not recorded
};

/// An executable graph. CUDA forbids its use by two threads at once, so its lock is uncontended.
struct ExecutableGraph {
  Mutex mutex;
  GraphKernels kernels CONVTRACE_GUARDED_BY(mutex);
  /// Indices into kernels.list.
  std::unordered_map<CUgraphNode, size_t> places CONVTRACE_GUARDED_BY(mutex);
};

class GraphTable {
 public:
  /// @param api, @param functions outlive this.
  GraphTable(const DriverApi& api, FunctionTable& functions) : api_(api), functions_(functions) {}

  /// The calling thread has captured a launch on `stream` at `place`. Call it right after the
  /// driver's call: the node is what the stream's next one will depend on.
  void captured(CUstream stream, const format::Place& place);
  /// `graph` is about to be destroyed, and its nodes with it.
  void source_destroyed(CUgraph graph);

  /// `exec` was instantiated from `graph`, or updated with its parameters.
  void instantiated(CUgraphExec exec, CUgraph graph);
  void updated(CUgraphExec exec, CUgraph graph);
  void kernel_set(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS& params);
  void node_set(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams& params);
  /// The child graph of `node` was replaced by a copy of `graph`.
  void child_set(CUgraphExec exec, CUgraphNode node, CUgraph graph);
  void set_enabled(CUgraphExec exec, CUgraphNode node, bool enabled);
  void destroyed(CUgraphExec exec);

  /// @return null for a graph whose instantiation was not seen.
  [[nodiscard]] std::shared_ptr<ExecutableGraph> find(CUgraphExec exec) const;

 private:
  [[nodiscard]] GraphKernels read(CUgraph graph) const;
  void read_nodes(CUgraph graph, int depth, GraphKernels& kernels) const;
  void read_kernel_node(CUgraphNode node, GraphKernels& kernels) const;
  void read_node(CUgraphNode node, int depth, GraphKernels& kernels) const;
  template <typename Params>
  [[nodiscard]] GraphKernel read_kernel(CUgraphNode node, const Params& params) const;
  template <typename Params>
  void set_kernel(CUgraphExec exec, CUgraphNode node, const Params& params);
  void put(CUgraphExec exec, GraphKernels kernels);
  [[nodiscard]] std::optional<format::Place> place_of(CUgraph graph, CUgraphNode node) const;

  /// Calls `change` with the kernel of that node, for it to modify.
  template <typename Change>
  void change_kernel(CUgraphExec exec, CUgraphNode node, Change change);

  const DriverApi& api_;
  FunctionTable& functions_;
  mutable SharedMutex mutex_;
  std::unordered_map<CUgraphExec, std::shared_ptr<ExecutableGraph>> execs_
      CONVTRACE_GUARDED_BY(mutex_);
  /// For each graph that exists: the places where its nodes were captured.
  std::unordered_map<CUgraph, std::unordered_map<CUgraphNode, format::Place>> places_
      CONVTRACE_GUARDED_BY(mutex_);
};

/// The kernel of a node as a LaunchInfo, with its parameters in one buffer.
class PackedLaunch {
 public:
  explicit PackedLaunch(const GraphKernel& kernel) noexcept;
  PackedLaunch(const PackedLaunch&) = delete;
  PackedLaunch& operator=(const PackedLaunch&) = delete;

  [[nodiscard]] const LaunchInfo& info() const noexcept { return info_; }

 private:
  size_t bytes_;
  void* extra_[5];
  LaunchInfo info_;
};

}  // namespace convtrace::cupti

#include "cupti/graphs/graph_table.h"

#include <algorithm>
#include <utility>

#include "cupti/driver/own_calls.h"

namespace convtrace::cupti {
namespace {

constexpr int kMaxDepth = 16;           // nesting of child graphs
constexpr size_t kMaxNodes = 1U << 20;  // a larger count is an error

void copy_params(const LaunchInfo& launch, std::span<const ParamLayout> layout,
                 std::vector<std::byte>& buffer) {
  const LaunchParams params(launch);
  for (size_t index = 0; index < layout.size(); ++index) {
    const ParamLayout& place = layout[index];
    const auto bytes = params.bytes_of(index, place.offset, place.bytes);
    buffer.resize(std::max(buffer.size(), place.offset + place.bytes));
    std::ranges::copy(bytes, buffer.begin() + static_cast<ptrdiff_t>(place.offset));
  }
}

bool touches_memory(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_MEMCPY || type == CU_GRAPH_NODE_TYPE_MEMSET ||
         type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
         type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
}

}  // namespace

/// @tparam Params  a version of CUDA_KERNEL_NODE_PARAMS.
template <typename Params>
GraphKernel GraphTable::read_kernel(CUgraphNode node, const Params& p) const {
  GraphKernel kernel;
  kernel.node = node;
  // The first version of the struct ends before `kern`; in it `func` is always set.
  kernel.handle = p.func != nullptr ? p.func : reinterpret_cast<CUfunction>(p.kern);
  const uint32_t grid[] = {p.gridDimX, p.gridDimY, p.gridDimZ};
  const uint32_t block[] = {p.blockDimX, p.blockDimY, p.blockDimZ};
  std::copy_n(grid, 3, kernel.grid);
  std::copy_n(block, 3, kernel.block);
  kernel.shared_bytes = p.sharedMemBytes;
  kernel.function = &functions_.resolve(kernel.handle);
  LaunchInfo launch;
  launch.params = p.kernelParams;
  launch.extra = p.extra;
  copy_params(launch, kernel.function->params, kernel.params);
  return kernel;
}

void GraphTable::read_kernel_node(CUgraphNode node, GraphKernels& kernels) const {
  CUDA_KERNEL_NODE_PARAMS params{};
  if (api_.graph_kernel_node_get_params(node, &params) != CUDA_SUCCESS) {
    ++kernels.unseen;
  } else {
    kernels.list.push_back(read_kernel(node, params));
  }
}

void GraphTable::read_node(CUgraphNode node, int depth, GraphKernels& kernels) const {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  if (api_.graph_node_get_type(node, &type) != CUDA_SUCCESS) {
    ++kernels.unseen;
  } else if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
    read_kernel_node(node, kernels);
  } else if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraph child = nullptr;
    if (depth < kMaxDepth && api_.graph_child_graph_node_get_graph(node, &child) == CUDA_SUCCESS) {
      const size_t first = kernels.list.size();
      read_nodes(child, depth + 1, kernels);
      for (size_t i = first; depth == 0 && i < kernels.list.size(); ++i)
        kernels.list[i].child = node;
    } else {
      ++kernels.unseen;
    }
  } else if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
    ++kernels.unseen;  // the device decides how often the body runs
  } else if (touches_memory(type)) {
    ++kernels.memory_nodes;
  }
}

void GraphTable::read_nodes(CUgraph graph, int depth, GraphKernels& kernels) const {
  size_t count = 0;
  if (api_.graph_get_nodes(graph, nullptr, &count) != CUDA_SUCCESS || count > kMaxNodes) {
    ++kernels.unseen;
    return;
  }
  std::vector<CUgraphNode> nodes(count);
  if (count > 0 && api_.graph_get_nodes(graph, nodes.data(), &count) != CUDA_SUCCESS) {
    ++kernels.unseen;
    return;
  }
  nodes.resize(std::min(count, nodes.size()));
  for (CUgraphNode node : nodes) {
    const size_t first = kernels.list.size();
    read_node(node, depth, kernels);
    const std::optional<format::Place> place = place_of(graph, node);
    for (size_t i = first; i < kernels.list.size(); ++i)
      if (!kernels.list[i].place) kernels.list[i].place = place;
  }
}

GraphKernels GraphTable::read(CUgraph graph) const {
  GraphKernels kernels;
  const bool told = api_.graph_get_nodes != nullptr && api_.graph_node_get_type != nullptr &&
                    api_.graph_kernel_node_get_params != nullptr &&
                    api_.graph_child_graph_node_get_graph != nullptr;
  const OwnCalls own;
  if (told) {
    read_nodes(graph, 0, kernels);
  } else {
    kernels.unseen = 1;  // a driver before CUDA 12
  }
  return kernels;
}

void GraphTable::put(CUgraphExec exec, GraphKernels kernels) {
  auto made = std::make_shared<ExecutableGraph>();
  {
    const Lock lock(made->mutex);
    made->kernels = std::move(kernels);
    const auto& list = made->kernels.list;
    for (size_t i = 0; i < list.size(); ++i) made->places.emplace(list[i].node, i);
  }
  const Lock lock(mutex_);
  execs_[exec].swap(made);
}

void GraphTable::captured(CUstream stream, const format::Place& place) {
  if (api_.stream_get_capture_info == nullptr) return;  // a driver before CUDA 12.3
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;  // not asking for them is an error where there are some
  size_t count = 0;
  const OwnCalls own;
  if (api_.stream_get_capture_info(stream, &status, nullptr, &graph, &nodes, &edges, &count) !=
          CUDA_SUCCESS ||
      status != CU_STREAM_CAPTURE_STATUS_ACTIVE || count != 1)
    return;
  const Lock lock(mutex_);
  places_[graph].insert_or_assign(nodes[0], place);
}

void GraphTable::source_destroyed(CUgraph graph) {
  const Lock lock(mutex_);
  places_.erase(graph);
}

std::optional<format::Place> GraphTable::place_of(CUgraph graph, CUgraphNode node) const {
  const SharedLock lock(mutex_);
  const auto known = places_.find(graph);
  if (known == places_.end()) return std::nullopt;
  const auto place = known->second.find(node);
  return place == known->second.end() ? std::nullopt : std::optional(place->second);
}

void GraphTable::instantiated(CUgraphExec exec, CUgraph graph) { put(exec, read(graph)); }

/// The nodes of the executable graph keep their handles, and stay enabled or disabled.
void GraphTable::updated(CUgraphExec exec, CUgraph graph) {
  GraphKernels kernels = read(graph);
  if (const auto before = find(exec)) {
    const Lock lock(before->mutex);
    const auto& old = before->kernels.list;
    for (size_t i = 0; i < std::min(old.size(), kernels.list.size()); ++i) {
      kernels.list[i].node = old[i].node;
      kernels.list[i].child = old[i].child;
      kernels.list[i].enabled = old[i].enabled;
    }
  }
  put(exec, std::move(kernels));
}

template <typename Change>
void GraphTable::change_kernel(CUgraphExec exec, CUgraphNode node, Change change) {
  const auto known = find(exec);
  if (known == nullptr) return;
  const Lock lock(known->mutex);
  const auto place = known->places.find(node);
  if (place != known->places.end()) change(known->kernels.list[place->second]);
}

template <typename Params>
void GraphTable::set_kernel(CUgraphExec exec, CUgraphNode node, const Params& params) {
  GraphKernel changed = read_kernel(node, params);
  change_kernel(exec, node, [&](GraphKernel& kernel) {
    changed.enabled = kernel.enabled;
    changed.place = kernel.place;
    kernel = std::move(changed);
  });
}

void GraphTable::kernel_set(CUgraphExec exec, CUgraphNode node,
                            const CUDA_KERNEL_NODE_PARAMS& params) {
  set_kernel(exec, node, params);
}

void GraphTable::node_set(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams& params) {
  if (params.type == CU_GRAPH_NODE_TYPE_KERNEL) set_kernel(exec, node, params.kernel);
  if (params.type == CU_GRAPH_NODE_TYPE_GRAPH) child_set(exec, node, params.graph.graph);
}

void GraphTable::child_set(CUgraphExec exec, CUgraphNode node, CUgraph graph) {
  const auto known = find(exec);
  if (known == nullptr) return;
  GraphKernels changed = read(graph);
  const Lock lock(known->mutex);
  size_t next = 0;
  for (GraphKernel& kernel : known->kernels.list) {
    if (kernel.child != node || next == changed.list.size()) continue;
    GraphKernel& now = changed.list[next++];
    now.node = kernel.node;
    now.child = kernel.child;
    now.enabled = kernel.enabled;
    if (!now.place) now.place = kernel.place;
    kernel = std::move(now);
  }
}

void GraphTable::set_enabled(CUgraphExec exec, CUgraphNode node, bool enabled) {
  change_kernel(exec, node, [&](GraphKernel& kernel) { kernel.enabled = enabled; });
}

void GraphTable::destroyed(CUgraphExec exec) {
  const Lock lock(mutex_);
  execs_.erase(exec);
}

std::shared_ptr<ExecutableGraph> GraphTable::find(CUgraphExec exec) const {
  const SharedLock lock(mutex_);
  const auto known = execs_.find(exec);
  return known == execs_.end() ? nullptr : known->second;
}

PackedLaunch::PackedLaunch(const GraphKernel& kernel) noexcept
    : bytes_(kernel.params.size()),
      extra_{CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<std::byte*>(kernel.params.data()),
             CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes_, CU_LAUNCH_PARAM_END} {
  info_.function = kernel.handle;
  std::copy_n(kernel.grid, 3, info_.grid);
  std::copy_n(kernel.block, 3, info_.block);
  info_.shared_bytes = kernel.shared_bytes;
  info_.extra = extra_;
}

}  // namespace convtrace::cupti

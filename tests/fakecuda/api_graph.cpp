/// Graphs: made by capture or node by node, instantiated, changed, launched.

#include <algorithm>

#include "tests/fakecuda/driver.h"

using namespace fakecuda;

namespace fakecuda {

void Work::run(uint64_t& unfinished) const {
  if (kernel != nullptr) kernel->run(unfinished);
  if (child != nullptr) child->run();
  if (other != nullptr) other();
}

void Work::run_to_end() const {
  uint64_t unfinished = 0;
  do run(unfinished);
  while (unfinished != 0);
}

}  // namespace fakecuda

void CUgraph_st::run() const {
  for (const CUgraphNode_st& node : nodes)
    if (node.enabled) node.work.run_to_end();
}

namespace {

CUgraph_st copy_of(const CUgraph_st& graph) {
  CUgraph_st copy;
  for (const CUgraphNode_st& node : graph.nodes) copy.nodes.push_back({.work = node.work});
  return copy;
}

CUgraphExec instantiate(const CUgraph_st& graph) {
  auto* exec = new CUgraphExec_st;
  exec->source_life = graph.life;
  for (const CUgraphNode_st& node : graph.nodes)
    exec->nodes.push_back(
        {.work = node.work, .source = const_cast<CUgraphNode>(&node), .enabled = true});
  return exec;
}

/// cuda.h, cuGraphExecKernelNodeSetParams: the node must not have been removed from the original
/// graph.
CUgraphNode_st* find_node(CUgraphExec exec, CUgraphNode source) {
  if (exec->source_life.expired()) return nullptr;
  for (CUgraphNode_st& node : exec->nodes)
    if (node.source == source) return &node;
  return nullptr;
}

/// @param Params any version of CUDA_KERNEL_NODE_PARAMS.
template <typename Params>
CUresult kernel_work(const Params& params, Work& work) {
  auto kernel = std::make_shared<KernelWork>();
  kernel->function = params.func;
  if constexpr (requires { params.kern; })
    if (params.func == nullptr) kernel->function = reinterpret_cast<CUfunction>(params.kern);
  if (kernel->function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const unsigned grid[] = {params.gridDimX, params.gridDimY, params.gridDimZ};
  const unsigned block[] = {params.blockDimX, params.blockDimY, params.blockDimZ};
  std::copy_n(grid, 3, kernel->grid);
  std::copy_n(block, 3, kernel->block);
  kernel->shared_bytes = params.sharedMemBytes;
  const CUresult copied = copy_arguments(*kernel, params.kernelParams, params.extra);
  if (copied == CUDA_SUCCESS) work = {.kernel = kernel, .child = nullptr, .other = nullptr};
  return copied;
}

template <typename Params>
CUresult set_exec_kernel(CUgraphExec exec, CUgraphNode source, const Params& params) {
  CUgraphNode_st* const node = find_node(exec, source);
  if (node == nullptr || node->work.kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return kernel_work(params, node->work);
}

/// A graph takes another's place if it has the same nodes in the same order.
CUresult update(CUgraphExec exec, CUgraph graph) {
  const auto same_kind = [](const CUgraphNode_st& a, const CUgraphNode_st& b) {
    return (a.work.kernel == nullptr) == (b.work.kernel == nullptr) &&
           (a.work.child == nullptr) == (b.work.child == nullptr);
  };
  if (!std::equal(exec->nodes.begin(), exec->nodes.end(), graph->nodes.begin(), graph->nodes.end(),
                  same_kind))
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  auto from = graph->nodes.begin();
  for (CUgraphNode_st& node : exec->nodes) node.work = (from++)->work;
  return CUDA_SUCCESS;
}

CUresult launch(CUgraphExec exec, CUstream stream, bool per_thread) {
  if (const CUresult status = entry_status(); status != CUDA_SUCCESS) return status;
  CUstream resolved = resolve(stream, per_thread);
  if (exec == nullptr || resolved == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  auto child = std::make_shared<CUgraph_st>();
  for (const CUgraphNode_st& node : exec->nodes)
    child->nodes.push_back({.work = node.work, .source = nullptr, .enabled = node.enabled});
  return enqueue(resolved, {.kernel = nullptr, .child = child, .other = nullptr});
}

}  // namespace

FAKECUDA_EXPORT CUresult cuGraphCreate(CUgraph* graph, unsigned) {
  *graph = new CUgraph_st;
  return entry_status();
}

FAKECUDA_EXPORT CUresult cuGraphClone(CUgraph* clone, CUgraph original) {
  *clone = new CUgraph_st(copy_of(*original));
  return entry_status();
}

FAKECUDA_EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  delete graph;
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*,
                                              size_t, const CUDA_KERNEL_NODE_PARAMS* params) {
  Work work;
  if (const CUresult made = kernel_work(*params, work); made != CUDA_SUCCESS) return made;
  *node = &graph->nodes.emplace_back(CUgraphNode_st{.work = work});
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph,
                                                  const CUgraphNode*, size_t, CUgraph child) {
  const auto copy = std::make_shared<CUgraph_st>(copy_of(*child));
  *node = &graph->nodes.emplace_back(
      CUgraphNode_st{.work = {.kernel = nullptr, .child = copy, .other = nullptr}});
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
  if (nodes == nullptr) {
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
  }
  *count = std::min(*count, graph->nodes.size());
  auto node = graph->nodes.begin();
  for (size_t i = 0; i < *count; ++i) nodes[i] = &*node++;
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  *type = node->work.kernel != nullptr  ? CU_GRAPH_NODE_TYPE_KERNEL
          : node->work.child != nullptr ? CU_GRAPH_NODE_TYPE_GRAPH
                                        : node->work.other_type;
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) {
  if (node->work.child == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *graph = node->work.child.get();
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuGraphKernelNodeGetParams(CUgraphNode node,
                                                    CUDA_KERNEL_NODE_PARAMS* params) {
  if (node->work.kernel == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const KernelWork& kernel = *node->work.kernel;
  *params = {};
  if (kernel.function->is_kernel) {
    params->kern = reinterpret_cast<CUkernel>(kernel.function);
  } else {
    params->func = kernel.function;
  }
  params->gridDimX = kernel.grid[0];
  params->gridDimY = kernel.grid[1];
  params->gridDimZ = kernel.grid[2];
  params->blockDimX = kernel.block[0];
  params->blockDimY = kernel.block[1];
  params->blockDimZ = kernel.block[2];
  params->sharedMemBytes = kernel.shared_bytes;
  params->kernelParams = const_cast<void**>(kernel.values.data());
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                                     unsigned long long) {
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *exec = instantiate(*graph);
  return entry_status();
}

FAKECUDA_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph,
                                                      CUDA_GRAPH_INSTANTIATE_PARAMS* params) {
  params->result_out = CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return cuGraphInstantiateWithFlags(exec, graph, params->flags);
}

FAKECUDA_EXPORT CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph,
                                           CUgraphExecUpdateResultInfo* info) {
  const CUresult result = update(exec, graph);
  *info = {};
  info->result = result == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                                        : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  return result;
}

FAKECUDA_EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                        const CUDA_KERNEL_NODE_PARAMS* params) {
  return set_exec_kernel(exec, node, *params);
}

FAKECUDA_EXPORT CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode source,
                                                            CUgraph child) {
  CUgraphNode_st* const node = find_node(exec, source);
  if (node == nullptr || node->work.child == nullptr) return CUDA_ERROR_INVALID_VALUE;
  node->work.child = std::make_shared<CUgraph_st>(copy_of(*child));
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                  CUgraphNodeParams* params) {
  if (params->type == CU_GRAPH_NODE_TYPE_GRAPH)
    return cuGraphExecChildGraphNodeSetParams(exec, node, params->graph.graph);
  if (params->type != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_NOT_SUPPORTED;
  return set_exec_kernel(exec, node, params->kernel);
}

FAKECUDA_EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode source,
                                               unsigned enabled) {
  CUgraphNode_st* const node = find_node(exec, source);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  node->enabled = enabled != 0;
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) {
  delete exec;
  return CUDA_SUCCESS;
}

FAKECUDA_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  const cuGraphLaunch_params params{exec, stream};
  return FAKECUDA_AROUND(cuGraphLaunch, params, [&] { return launch(exec, stream, false); });
}

FAKECUDA_EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) {
  const cuGraphLaunch_ptsz_params params{exec, stream};
  return FAKECUDA_AROUND(cuGraphLaunch_ptsz, params, [&] { return launch(exec, stream, true); });
}

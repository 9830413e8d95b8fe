#include "cupti/gate/graph_replay.h"

#include <algorithm>
#include <array>
#include <bit>

namespace convtrace::cupti {
namespace {

using format::LossReason;
using format::SampleOutcome;

void count(const CudaState& state, uint32_t step, LossReason reason, uint64_t lost) {
  if (lost == 0) return;
  format::Loss loss;
  loss.header.step = step;
  loss.reason = reason;
  loss.count = lost;
  state.options.sink->emit(loss);
}

bool asks_for_inputs(const GraphKernel& kernel) {
  return kernel.enabled &&
         std::ranges::any_of(kernel.function->rules,
                             [](const settings::Rule* rule) { return !rule->inputs.empty(); });
}

void emit_kernel(CudaState& state, const GraphKernel& kernel, const format::Launch& graph_launch,
                 bool memory_known, std::span<format::Operand> operands) {
  const PackedLaunch packed(kernel);
  format::Launch event = graph_launch;
  event.kernel = kernel.function->kernel;
  event.place = kernel.place.value_or(graph_launch.place);
  std::copy_n(kernel.grid, 3, event.grid);
  std::copy_n(kernel.block, 3, event.block);
  event.shared_bytes = kernel.shared_bytes;
  event.sampled = SampleOutcome::kInGraph;
  const size_t count = scan_operands(packed.info(), kernel.function->words,
                                     *state.options.addresses, state.tensor_maps, operands);
  event.operands = operands.first(count);
  if (!memory_known) doubt(operands.first(count));
  if (state.options.compute_values)
    state.uses.launched({event.stream, event.device}, event.operands);
  state.options.sink->emit(event);
}

}  // namespace

void take_graph_call(CudaState& state, convtrace_graph_call call, CUgraphExec exec, void* object,
                     const void* params) {
  GraphTable& graphs = state.graphs;
  auto* const graph = static_cast<CUgraph>(object);
  auto* const node = static_cast<CUgraphNode>(object);
  switch (call) {
    case CONVTRACE_GRAPH_INSTANTIATED: return graphs.instantiated(exec, graph);
    case CONVTRACE_GRAPH_UPDATED: return graphs.updated(exec, graph);
    case CONVTRACE_GRAPH_KERNEL_SET:
      return graphs.kernel_set(exec, node, *static_cast<const CUDA_KERNEL_NODE_PARAMS*>(params));
    case CONVTRACE_GRAPH_NODE_SET:
      return graphs.node_set(exec, node, *static_cast<const CUgraphNodeParams*>(params));
    case CONVTRACE_GRAPH_CHILD_SET:
      return graphs.child_set(exec, node, static_cast<CUgraph>(const_cast<void*>(params)));
    case CONVTRACE_GRAPH_NODE_ENABLED: return graphs.set_enabled(exec, node, true);
    case CONVTRACE_GRAPH_NODE_DISABLED: return graphs.set_enabled(exec, node, false);
    case CONVTRACE_GRAPH_DESTROYED: return graphs.destroyed(exec);
    case CONVTRACE_GRAPH_SOURCE_DESTROYED: return graphs.source_destroyed(graph);
    case CONVTRACE_CAPTURE_BEGUN:
      return state.captures.apply({static_cast<CUstream>(object), true});
    case CONVTRACE_CAPTURE_ENDED:
      return state.captures.apply({static_cast<CUstream>(object), false});
  }
}

void collect_graph(const CudaState& state, ExecutableGraph& graph, LaunchCapture& capture) {
  const Lock lock(graph.mutex);
  const bool in_front = std::ranges::any_of(graph.kernels.list, asks_for_inputs);
  // Copies and unknown kernels may write any memory at any time.
  if (in_front && graph.kernels.unseen + graph.kernels.memory_nodes > 0)
    capture.assume_all_written();
  std::array<format::Operand, kMaxOperands> storage;  // outside of the loop: 8 KiB
  for (const GraphKernel& kernel : graph.kernels.list) {
    const bool tagged = !kernel.function->rules.empty();
    if (!kernel.enabled || (!tagged && !in_front)) continue;
    const PackedLaunch packed(kernel);
    const size_t count = scan_operands(packed.info(), kernel.function->words,
                                       *state.options.addresses, state.tensor_maps, storage);
    const auto operands = std::span(storage).first(count);
    if (tagged)
      capture.collect(LaunchCapture::Purpose::kReplay, packed.info(), *kernel.function, operands,
                      kernel.place);
    if (in_front) capture.assume_written(operands);
  }
  capture.keep_last_of_each_buffer();
}

SampleOutcome sample_graph(const CudaState& state, ExecutableGraph* graph,
                           std::optional<LaunchCapture>& capture, CUcontext context,
                           const format::Launch& launch) {
  const uint32_t step = launch.header.step;
  if (graph == nullptr || !capture) {
    count(state, step, LossReason::kGraphUnseen, 1);
    return SampleOutcome::kNotAsked;
  }
  const Lock lock(graph->mutex);
  count(state, step, LossReason::kGraphUnseen, graph->kernels.unseen + capture->unknown_inputs());
  count(state, step, LossReason::kGraphMemory, graph->kernels.memory_nodes);
  return capture->submit(context, std::bit_cast<CUstream>(launch.stream));
}

void emit_graph_kernels(CudaState& state, ExecutableGraph& graph, const format::Launch& launch,
                        bool memory_known) {
  std::array<format::Operand, kMaxOperands> operands;  // outside of the loop: 8 KiB
  const Lock lock(graph.mutex);
  for (const GraphKernel& kernel : graph.kernels.list)
    if (kernel.enabled) emit_kernel(state, kernel, launch, memory_known, operands);
}

}  // namespace convtrace::cupti

#include "cupti/graph_replay.h"

#include <algorithm>
#include <array>
#include <bit>

#include "cupti/sampler.h"

namespace convtrace::cupti {
namespace {

using format::LossReason;
using format::NotSampled;

void count(const CudaState& state, uint32_t step, LossReason reason, uint64_t lost) {
  if (lost == 0) return;
  format::Loss loss;
  loss.header.step = step;
  loss.reason = reason;
  loss.count = lost;
  state.options.sink->emit(loss);
}

void emit_kernel(const CudaState& state, const GraphKernel& kernel,
                 const format::Launch& graph_launch, bool memory_known,
                 std::span<format::Operand> operands) {
  const PackedLaunch packed(kernel);
  format::Launch event = graph_launch;
  event.kernel = kernel.function->kernel;
  std::copy_n(kernel.grid, 3, event.grid);
  std::copy_n(kernel.block, 3, event.block);
  event.shared_bytes = kernel.shared_bytes;
  event.sampled = NotSampled::kInGraph;
  const size_t count = scan_operands(packed.info(), kernel.function->params,
                                     *state.options.addresses, state.tensor_maps, operands);
  event.operands = operands.first(count);
  if (!memory_known) doubt(operands.first(count));
  state.options.sink->emit(event);
}

}  // namespace

NotSampled sample_graph(CudaState& state, ExecutableGraph* graph, CUcontext context,
                        const Position& position, const format::Launch& launch) {
  if (graph == nullptr) {
    count(state, position.step, LossReason::kGraphUnseen, 1);
    return NotSampled::kNotAsked;
  }
  const std::lock_guard lock(graph->mutex);
  count(state, position.step, LossReason::kGraphUnseen, graph->kernels.unseen);
  count(state, position.step, LossReason::kGraphMemory, graph->kernels.memory_nodes);
  Sampler sampler(state, position, launch.device);
  std::array<format::Operand, kMaxOperands> operands;  // made once: 8 KiB
  for (const GraphKernel& kernel : graph->kernels.list) {
    if (!kernel.enabled || kernel.function->rules.empty()) continue;
    const PackedLaunch packed(kernel);
    const size_t count = scan_operands(packed.info(), kernel.function->params,
                                       *state.options.addresses, state.tensor_maps, operands);
    sampler.collect(Sampler::Purpose::kReplay, packed.info(), *kernel.function,
                    std::span(operands).first(count));
  }
  // With nodes of ours inside, values are those behind each kernel: what the buffers hold at the
  // end would be told under the same keys. Kernels without a node have none.
  if (const size_t nodes = graph->kernels.own.size(); nodes > 0) {
    const size_t asked = sampler.count();
    count(state, position.step, LossReason::kGraphUnseen, asked > nodes ? asked - nodes : 0);
    return asked > 0 ? NotSampled::kRingFull : NotSampled::kNotAsked;
  }
  sampler.keep_last_of_each_buffer();
  return sampler.submit(context, std::bit_cast<CUstream>(launch.stream));
}

void emit_graph_kernels(const CudaState& state, ExecutableGraph& graph,
                        const format::Launch& launch, bool memory_known) {
  std::array<format::Operand, kMaxOperands> operands;  // made once: 8 KiB
  const std::lock_guard lock(graph.mutex);
  for (const GraphKernel& kernel : graph.kernels.list)
    if (kernel.enabled) emit_kernel(state, kernel, launch, memory_known, operands);
}

}  // namespace convtrace::cupti

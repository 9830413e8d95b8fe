#include "cupti/graph_replay.h"

#include <algorithm>
#include <array>
#include <bit>

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

bool asks_for_inputs(const GraphKernel& kernel) {
  return kernel.enabled &&
         std::ranges::any_of(kernel.function->rules,
                             [](const settings::Rule* rule) { return !rule->inputs.empty(); });
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

void collect_graph(const CudaState& state, ExecutableGraph& graph, Sampler& sampler) {
  const std::lock_guard lock(graph.mutex);
  const GraphKernels& kernels = graph.kernels;
  const bool in_front = kernels.own.empty() && std::ranges::any_of(kernels.list, asks_for_inputs);
  // Copies, and kernels that are not known, may write anything at any time.
  if (in_front && kernels.unseen + kernels.memory_nodes > 0) sampler.assume_all_written();
  std::array<format::Operand, kMaxOperands> storage;  // made once: 8 KiB
  for (const GraphKernel& kernel : kernels.list) {
    const bool tagged = !kernel.function->rules.empty();
    if (!kernel.enabled || (!tagged && !in_front)) continue;
    const PackedLaunch packed(kernel);
    const size_t count = scan_operands(packed.info(), kernel.function->params,
                                       *state.options.addresses, state.tensor_maps, storage);
    const auto operands = std::span(storage).first(count);
    if (tagged)
      sampler.collect(Sampler::Purpose::kReplay, packed.info(), *kernel.function, operands);
    if (in_front) sampler.assume_written(operands);
  }
  if (kernels.own.empty()) sampler.keep_last_of_each_buffer();
}

NotSampled sample_graph(const CudaState& state, ExecutableGraph* graph,
                        std::optional<Sampler>& sampler, CUcontext context,
                        const format::Launch& launch) {
  const uint32_t step = launch.header.step;
  if (graph == nullptr || !sampler) {
    count(state, step, LossReason::kGraphUnseen, 1);
    return NotSampled::kNotAsked;
  }
  const std::lock_guard lock(graph->mutex);
  count(state, step, LossReason::kGraphUnseen, graph->kernels.unseen + sampler->unknown_inputs());
  count(state, step, LossReason::kGraphMemory, graph->kernels.memory_nodes);
  // With nodes of ours inside, values are those around each kernel: what the buffers hold at the
  // ends would be told under the same keys. Kernels without a node have none.
  if (const size_t nodes = graph->kernels.own.size(); nodes > 0) {
    const size_t asked = sampler->count();
    count(state, step, LossReason::kGraphUnseen, asked > nodes ? asked - nodes : 0);
    return asked > 0 ? NotSampled::kRingFull : NotSampled::kNotAsked;
  }
  return sampler->submit(context, std::bit_cast<CUstream>(launch.stream));
}

void emit_graph_kernels(const CudaState& state, ExecutableGraph& graph,
                        const format::Launch& launch, bool memory_known) {
  std::array<format::Operand, kMaxOperands> operands;  // made once: 8 KiB
  const std::lock_guard lock(graph.mutex);
  for (const GraphKernel& kernel : graph.kernels.list)
    if (kernel.enabled) emit_kernel(state, kernel, launch, memory_known, operands);
}

}  // namespace convtrace::cupti

// ContextStats: its kernel as a node of the program's graphs.

#include <optional>

#include "cupti/context_stats.h"

namespace convtrace::cupti {
namespace {

constexpr size_t kTicketBytes = 256;  // one, on a line of its own

stats::Batch idle_batch(uint64_t id) {
  stats::Batch batch{};
  batch.tickets = id;
  return batch;
}

/// The one tensor of a node. @param scratch the ticket, then the partials.
stats::BatchBuilder builder_at(CUdeviceptr scratch, stats::Variant variant) {
  return {scratch + kTicketBytes, scratch, variant};
}

}  // namespace

format::NotSampled ContextStats::launch_idle(CUstream stream, uint64_t id) noexcept {
  if (phase() != Phase::kReady) return format::NotSampled::kNotReady;
  if (driver_.graph_exec_kernel_node_set_params == nullptr) return format::NotSampled::kGpuWorkOff;
  stats::Batch batch = idle_batch(id);
  void* params[] = {&batch};
  const CUresult result =
      driver_.launch_kernel(kernel_, 1, 1, 1, stats::kThreads, 1, 1, 0, stream, params, nullptr);
  return result == CUDA_SUCCESS ? format::NotSampled::kSampled : format::NotSampled::kGpuWorkOff;
}

uint64_t ContextStats::idle_id(void** params) noexcept {
  return params == nullptr ? 0 : static_cast<const stats::Batch*>(params[0])->tickets;
}

CUdeviceptr ContextStats::take_scratch(const DeviceRequest& request) {
  stats::Layout layout;
  auto builder = builder_at(0, variant_);
  if (phase() != Phase::kReady || !stats::flatten(request.view, layout).ok() || layout.count == 0 ||
      !builder.add(layout, request.event.capture, 0, 0))
    return 0;
  return node_memory_.take(kTicketBytes + builder.blocks() * sizeof(stats::Partial),
                           [this](uint64_t ticket) { return ring_.is_done(ticket); });
}

void ContextStats::give_back_scratch(CUdeviceptr scratch,
                                     std::optional<uint64_t> last_ticket) noexcept {
  if (scratch != 0) node_memory_.give_back(scratch, last_ticket);
}

CUresult ContextStats::set_node(CUgraphExec exec, CUgraphNode node, const stats::Batch& batch,
                                uint32_t blocks) noexcept {
  void* values[] = {const_cast<stats::Batch*>(&batch)};  // the driver copies it
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = kernel_;
  params.gridDimX = blocks;
  params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
  params.blockDimX = stats::kThreads;
  params.kernelParams = values;
  return driver_.graph_exec_kernel_node_set_params(exec, node, &params);
}

std::optional<uint64_t> ContextStats::arm(CUgraphExec exec, CUgraphNode node, CUdeviceptr scratch,
                                          const DeviceRequest& request) noexcept {
  if (scratch == 0 || phase() != Phase::kReady) return std::nullopt;
  std::optional<uint64_t> ticket;
  {
    const std::lock_guard lock(claim_mutex_);
    ticket = ring_.claim(std::span(&request, 1));
  }
  if (!ticket) return std::nullopt;
  auto builder = builder_at(scratch, variant_);
  if (ring_.layout(*ticket) != nullptr && ring_.add_to(builder, *ticket) &&
      set_node(exec, node, builder.batch(), builder.blocks()) == CUDA_SUCCESS)
    return ticket;
  ring_.drop(*ticket);
  return std::nullopt;
}

void ContextStats::disarm(CUgraphExec exec, CUgraphNode node, uint64_t id,
                          std::optional<uint64_t> unused) noexcept {
  if (unused) ring_.drop(*unused);
  // A node that cannot be disarmed would write into another's slot at the next launch.
  if (set_node(exec, node, idle_batch(id), 1) != CUDA_SUCCESS) phase_.store(Phase::kOver);
}

}  // namespace convtrace::cupti

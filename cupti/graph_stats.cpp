#include "cupti/graph_stats.h"

#include <algorithm>

#include "cupti/own_calls.h"

namespace convtrace::cupti {
namespace {

/// A program that captures anew in each step would have us remember without end.
constexpr size_t kMaxCaptured = 100'000;

}  // namespace

format::NotSampled GraphStats::capture(CUcontext context, CUstream stream,
                                       std::span<const DeviceRequest> requests) {
  const auto known = stats_.find(context);
  if (known == nullptr) return format::NotSampled::kNotReady;
  const OwnCalls own;
  for (const DeviceRequest& request : requests) {
    uint64_t id = 0;
    {
      const std::lock_guard lock(mutex_);
      if (captured_.size() == kMaxCaptured) return format::NotSampled::kRingFull;
      captured_.push_back({known, request});
      id = captured_.size();
    }
    const format::NotSampled outcome = known->launch_idle(stream, id);
    if (outcome != format::NotSampled::kSampled) return outcome;
  }
  return format::NotSampled::kCaptured;
}

GraphStats::Captured GraphStats::find(uint64_t id) const {
  const std::lock_guard lock(mutex_);
  return id == 0 || id > captured_.size() ? Captured{} : captured_[id - 1];
}

void GraphStats::prepare(ExecutableGraph& graph) {
  const OwnCalls own;
  const std::lock_guard lock(graph.mutex);
  for (OwnNode& node : graph.kernels.own) {
    const Captured captured = find(node.id);
    if (const auto context = captured.context.lock())
      node.scratch = context->make_scratch(captured.request);
  }
}

void GraphStats::release(ExecutableGraph& graph) noexcept {
  const OwnCalls own;
  const std::lock_guard lock(graph.mutex);
  for (OwnNode& node : graph.kernels.own)
    if (const auto context = find(node.id).context.lock()) context->free_scratch(node.scratch);
  graph.kernels.own.clear();
}

size_t GraphStats::arm(CUgraphExec exec, ExecutableGraph& graph, uint32_t step) {
  const OwnCalls own;
  const std::lock_guard lock(graph.mutex);
  size_t armed = 0;
  for (OwnNode& node : graph.kernels.own) {
    Captured captured = find(node.id);
    captured.request.event.header.step = step;
    const auto context = captured.context.lock();
    node.ticket = context == nullptr
                      ? std::nullopt
                      : context->arm(exec, node.node, node.scratch, captured.request);
    if (node.ticket) ++armed;
  }
  if (const size_t lost = graph.kernels.own.size() - armed; lost > 0) {
    format::Loss loss;
    loss.header.step = step;
    loss.reason = format::LossReason::kRingFull;
    loss.count = lost;
    sink_.emit(loss);
  }
  return armed;
}

void GraphStats::disarm(CUgraphExec exec, ExecutableGraph& graph, bool launched) noexcept {
  const OwnCalls own;
  const std::lock_guard lock(graph.mutex);
  for (OwnNode& node : graph.kernels.own) {
    if (!node.ticket) continue;
    if (const auto context = find(node.id).context.lock())
      context->disarm(exec, node.node, node.id, launched ? std::nullopt : node.ticket);
    node.ticket.reset();
  }
}

}  // namespace convtrace::cupti

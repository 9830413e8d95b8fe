#include "cupti/graph_stats.h"

#include <utility>

#include "cupti/own_calls.h"
#include "cupti/sampler.h"

namespace convtrace::cupti {
namespace {

/// A program that captures anew in each step would have us remember without end.
constexpr size_t kMaxCaptured = 16'384;

/// The same pieces as when it was captured need not hold it: what counts is that it can be read.
bool is_live(const AddressMap& addresses, const format::TensorStats& event) {
  constexpr int kMaxPieces = 64;
  uint64_t address = event.address;
  const uint64_t end = address + event.bytes;
  for (int i = 0; i < kMaxPieces && address < end; ++i) {
    const auto range = addresses.find(address);
    if (!range || range->freed || !is_readable(*range, event.device.index)) return false;
    address = range->base + range->bytes;
  }
  return address >= end;
}

}  // namespace

format::NotSampled GraphStats::capture(CUcontext context, CUstream stream,
                                       std::span<const DeviceRequest> requests) {
  const auto known = stats_.find(context);
  if (known == nullptr) return format::NotSampled::kNotReady;
  const OwnCalls own;
  for (const DeviceRequest& request : requests) {
    const uint64_t id = remember(std::make_shared<NodeValue>(NodeValue{known, request}));
    const format::NotSampled outcome = known->launch_idle(stream, id);
    if (outcome != format::NotSampled::kSampled) return outcome;
  }
  return format::NotSampled::kCaptured;
}

uint64_t GraphStats::remember(Value value) {
  const std::lock_guard lock(mutex_);
  captured_.push_back(std::move(value));
  if (captured_.size() > kMaxCaptured) captured_.pop_front();
  return ++last_id_;
}

GraphStats::Value GraphStats::find(uint64_t id) const {
  const std::lock_guard lock(mutex_);
  if (id > last_id_ || last_id_ - id >= captured_.size()) return nullptr;
  return captured_[captured_.size() - 1 - (last_id_ - id)];
}

void GraphStats::lose(uint32_t step, format::LossReason reason, size_t count) {
  if (count == 0) return;
  format::Loss loss;
  loss.header.step = step;
  loss.reason = reason;
  loss.count = count;
  sink_.emit(loss);
}

void GraphStats::prepare(ExecutableGraph& graph) {
  const OwnCalls own;
  const std::lock_guard lock(graph.mutex);
  for (OwnNode& node : graph.kernels.own) {
    node.value = find(node.id);
    if (node.value == nullptr) continue;
    if (const auto context = node.value->context.lock())
      node.scratch = context->take_scratch(node.value->request);
  }
}

void GraphStats::release(ExecutableGraph& graph) noexcept {
  const OwnCalls own;
  const std::lock_guard lock(graph.mutex);
  for (OwnNode& node : graph.kernels.own) {
    if (node.value == nullptr) continue;
    if (const auto context = node.value->context.lock())
      context->give_back_scratch(node.scratch, node.last_ticket);
  }
  graph.kernels.own.clear();
}

size_t GraphStats::arm(CUgraphExec exec, ExecutableGraph& graph, const Position& position) {
  const OwnCalls own;
  const std::lock_guard lock(graph.mutex);
  size_t armed = 0;
  size_t gone = 0;
  size_t refused = 0;
  for (OwnNode& node : graph.kernels.own) {
    const auto context = node.value == nullptr ? nullptr : node.value->context.lock();
    if (context == nullptr) {
      ++refused;
      continue;
    }
    DeviceRequest request = node.value->request;
    if (!asks_now(*request.rule, position)) continue;
    if (!is_live(addresses_, request.event)) {
      ++gone;
      continue;
    }
    request.event.header.step = position.step;
    node.ticket = context->arm(exec, node.node, node.scratch, request);
    if (node.ticket) node.last_ticket = node.ticket;
    ++(node.ticket ? armed : refused);
  }
  lose(position.step, format::LossReason::kGraphUnseen, gone);
  lose(position.step, format::LossReason::kRingFull, refused);
  return armed;
}

void GraphStats::disarm(CUgraphExec exec, ExecutableGraph& graph, bool launched) noexcept {
  const OwnCalls own;
  const std::lock_guard lock(graph.mutex);
  for (OwnNode& node : graph.kernels.own) {
    if (!node.ticket) continue;
    if (const auto context = node.value->context.lock())
      context->disarm(exec, node.node, node.id, launched ? std::nullopt : node.ticket);
    node.ticket.reset();
  }
}

}  // namespace convtrace::cupti

#include "interposer/engine/event_queue.h"

#include <algorithm>

namespace convtrace::engine {
namespace {

constexpr auto kLater = [](const auto& a, const auto& b) { return a.t_ns > b.t_ns; };

}  // namespace

void EventQueue::push(const format::Event& event) noexcept {
  ThreadContext* const context = this_thread();
  if (context == nullptr) return lose(format::LossReason::kQueueFull);
  ByteRing& ring = context->events;
  if (!ring.mapped() && !ring.map(kEventRingBytes)) return lose(format::LossReason::kQueueFull);
  const size_t bytes = packed_bytes(event);
  std::byte* const out = ring.reserve(bytes, static_cast<uint32_t>(event.index()));
  if (out == nullptr) {
    doorbell_.ring();
    return lose(bytes > ring.max_payload() ? format::LossReason::kRecordTooLarge
                                           : format::LossReason::kQueueFull);
  }
  pack(event, out);
  ring.commit();
  if (ring.used() > ring.capacity() / 2) doorbell_.ring();
}

EventQueue::Losses EventQueue::take_losses() noexcept {
  Losses taken{};
  for (size_t i = 0; i < taken.size(); ++i) {
    taken[i] = losses_[i].exchange(0, std::memory_order_relaxed);
  }
  return taken;
}

void EventQueue::collect_heads(uint64_t horizon_ns) {
  heads_.clear();
  for (ThreadContext* context = first_thread(); context != nullptr; context = context->next) {
    // tail() is the acquire that also makes a ring mapped by its thread visible here.
    const uint64_t end = context->events.tail();
    if (end != 0) push_next(Head{0, &context->events, end, {}}, horizon_ns);
  }
}

EventQueue::Head EventQueue::pop_earliest() {
  std::pop_heap(heads_.begin(), heads_.end(), kLater);
  const Head head = heads_.back();
  heads_.pop_back();
  return head;
}

void EventQueue::push_next(Head head, uint64_t horizon_ns) {
  head.record = head.ring->front(head.end);
  if (head.record.payload == nullptr) return;
  head.t_ns = packed_time(head.record.tag, head.record.payload);
  if (head.t_ns > horizon_ns) return;
  heads_.push_back(head);
  std::push_heap(heads_.begin(), heads_.end(), kLater);
}

}  // namespace convtrace::engine

#include "interposer/core/queue/event_queue.h"

#include "format/base/clock.h"

namespace convtrace::engine {

void EventQueue::push(const format::Event& event) noexcept {
  ThreadContext* const context = this_thread();
  if (context == nullptr) return lose(format::LossReason::kQueueFull);
  ByteRing& ring = context->events;
  if (!ring.mapped() && !ring.map(kEventRingBytes)) return lose(format::LossReason::kQueueFull);
  const size_t bytes = packed_bytes(event);
  std::byte* const out = ring.reserve(bytes, static_cast<uint32_t>(event.index()));
  if (out == nullptr) {
    wakeup_.wake();
    return lose(bytes > ring.max_payload() ? format::LossReason::kRecordTooLarge
                                           : format::LossReason::kQueueFull);
  }
  pack(event, out);
  format::EventHeader& header = packed_header(out);
  if (header.t_ns == 0) header.t_ns = now_ns();
  if (header.thread == 0) header.thread = context->thread;
  ring.commit();
  if (ring.used() > ring.capacity() / 2) wakeup_.wake();
}

EventQueue::Losses EventQueue::take_losses() noexcept {
  Losses taken{};
  for (size_t i = 0; i < taken.size(); ++i) {
    taken[i] = losses_[i].exchange(0, std::memory_order_relaxed);
  }
  return taken;
}

}  // namespace convtrace::engine

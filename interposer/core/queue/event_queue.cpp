#include "interposer/core/queue/event_queue.h"

#include "format/base/clock.h"

namespace convtrace::engine {
namespace {

/// @return the calling thread's context, whose ring is mapped; null if there is no memory.
ThreadContext* context_with_ring() noexcept {
  ThreadContext* const context = this_thread();
  if (context == nullptr) return nullptr;
  ByteRing& ring = context->events;
  return ring.mapped() || ring.map(kEventRingBytes) ? context : nullptr;
}

constexpr size_t kValueKind = format::Event(format::TensorStats{}).index();

bool is_crowded(const ByteRing& ring) noexcept { return ring.used() > ring.capacity() / 2; }

}  // namespace

void EventQueue::push(const format::Event& event) noexcept {
  ThreadContext* const context = context_with_ring();
  if (context == nullptr) return lose(format::LossReason::kQueueFull);
  const size_t bytes = packed_bytes(event);
  std::byte* const out = context->events.reserve(bytes, static_cast<uint32_t>(event.index()));
  if (out == nullptr) {
    wakeup_.wake();
    return lose(bytes > context->events.max_payload() ? format::LossReason::kRecordTooLarge
                                                      : format::LossReason::kQueueFull);
  }
  pack(event, out);
  commit(*context, out);
}

bool EventQueue::push_value(const format::TensorStats& value,
                            const stats::Layout& elements) noexcept {
  const uint64_t size = elements.bytes();
  if (size > kSmallValueBytes || size != value.bytes) return false;
  ThreadContext* const context = context_with_ring();
  if (context == nullptr || is_crowded(context->events)) return false;
  const format::Event event(value);
  const size_t bytes = packed_bytes(event);
  std::byte* const out = context->events.reserve(bytes + size, kValueTag);
  if (out == nullptr) return false;
  pack(event, out);
  stats::gather(elements, 0, elements.count, out + bytes);
  commit(*context, out);
  return true;
}

void EventQueue::commit(ThreadContext& context, std::byte* packed) noexcept {
  format::EventHeader& header = packed_header(packed);
  if (header.t_ns == 0) header.t_ns = now_ns();
  if (header.thread == 0) header.thread = context.thread;
  context.events.commit();
  if (is_crowded(context.events)) wakeup_.wake();
}

format::Event EventQueue::computed(const std::byte* packed) noexcept {
  format::Event event = unpack(kValueKind, packed);
  auto& value = std::get<format::TensorStats>(event);
  const uint64_t count = value.bytes / format::element_bytes(value.dtype);
  const auto view = stats::dense_view(packed + packed_bytes(event), value.dtype, count);
  // Cannot fail for dense elements.
  (void)stats::compute_on_cpu(view, value.capture, result_);
  stats::describe(value, result_, true);
  return event;
}

EventQueue::Losses EventQueue::take_losses() noexcept {
  Losses taken{};
  for (size_t i = 0; i < taken.size(); ++i)
    taken[i] = losses_[i].exchange(0, std::memory_order_relaxed);
  return taken;
}

}  // namespace convtrace::engine

#pragma once
/// @file recording_sink.h
/// An EventSink that keeps what it was given.

#include <deque>
#include <mutex>
#include <vector>

#include "format/model/event_sink.h"
#include "interposer/core/queue/event_pack.h"

namespace convtrace::test {

class RecordingSink final : public format::EventSink {
 public:
  void emit(const format::Event& event) noexcept override {
    const std::lock_guard lock(mutex_);
    auto& memory = memory_.emplace_back(engine::packed_bytes(event) / 8);
    auto* const bytes = reinterpret_cast<std::byte*>(memory.data());
    engine::pack(event, bytes);
    events_.push_back(engine::unpack(event.index(), bytes));
  }

  /// @return all events of one kind, in order.
  template <typename E>
  [[nodiscard]] std::vector<E> all() const {
    std::vector<E> found;
    for (const format::Event& event : events_) {
      if (const auto* e = std::get_if<E>(&event)) found.push_back(*e);
    }
    return found;
  }
  [[nodiscard]] size_t size() const { return events_.size(); }

  /// @return how many were lost for `reason`.
  [[nodiscard]] uint64_t lost(format::LossReason reason) const {
    uint64_t count = 0;
    for (const format::Loss& loss : all<format::Loss>()) {
      if (loss.reason == reason) count += loss.count;
    }
    return count;
  }

 private:
  std::mutex mutex_;
  std::deque<std::vector<uint64_t>> memory_;
  std::deque<format::Event> events_;
};

}  // namespace convtrace::test

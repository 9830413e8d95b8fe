#pragma once
/// @file event_queue.h
/// From the threads of the host to the writer thread: each thread has a ring of its own, the drain
/// merges them by time.
///
/// Bounded:  an event that does not fit is dropped and counted, the host never waits.
/// Order:    a drain takes only events stamped at or before a moment read before it looked at any
///           ring. So if one event happened before another (same thread, or handed over between
///           threads), they come out in that order, also across drains.
/// Threads:  push and lose from any, drain from one.
/// Cost:     a push is a copy into memory that is already mapped: no lock, no system call.

#include <array>
#include <atomic>
#include <cstdint>

#include "format/model/events.h"
#include "interposer/core/queue/event_pack.h"
#include "interposer/core/queue/ring_merge.h"
#include "interposer/core/runtime/wakeup.h"

namespace convtrace::engine {

/// Room for 30,000 launches: a writer thread that shares its processor with eight others drains the
/// ring a few times a second.
inline constexpr size_t kEventRingBytes = size_t{4} << 20;

class EventQueue {
 public:
  /// @param wakeup  of the reader, which is woken when a ring is half full; outlives the queue.
  explicit EventQueue(Wakeup& wakeup) : wakeup_(wakeup) {}

  /// Copies `event` and all it borrows; gives it time and thread where those are 0.
  void push(const format::Event& event) noexcept;

  void lose(format::LossReason reason, uint64_t count = 1) noexcept {
    losses_[static_cast<size_t>(reason)].fetch_add(count, std::memory_order_relaxed);
  }

  using Losses = std::array<uint64_t, format::kEnumCount<format::LossReason>>;
  /// @return what was lost since the last call, by reason.
  [[nodiscard]] Losses take_losses() noexcept;

  /// Gives waiting events to `take` in order of time; `take(const format::Event&)` returns whether
  /// to go on. An event's spans are valid during the call.
  /// @param horizon_ns now_ns(), read before the call; ~0 for everything.
  /// @return events taken.
  template <typename Take>
  uint64_t drain(uint64_t horizon_ns, Take&& take) {
    return merge_.run(
        &ThreadContext::events, horizon_ns,
        [](const ByteRing::Record& record) { return packed_header(record.payload).t_ns; },
        [&take](const ByteRing::Record& record) {
          return take(unpack(record.tag, record.payload));
        });
  }

 private:
  Wakeup& wakeup_;
  std::array<std::atomic<uint64_t>, format::kEnumCount<format::LossReason>> losses_{};
  RingMerge merge_;  ///< of the draining thread
};

}  // namespace convtrace::engine

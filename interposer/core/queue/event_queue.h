#pragma once
/// @file event_queue.h
/// Carries events from the threads of the host to the writer thread: each thread has a ring, and
/// drain() merges the rings by time.
///
/// Bounded:  an event that does not fit is dropped and counted; the host never waits.
/// Order:    drain() reads the clock before it looks at any ring and takes only events stamped up
///           to then. So if one event happened before another (on the same thread, or synchronised
///           between threads), they come out in that order, also across drains.
/// Values:   a small value in host memory comes as a copy of its elements, whose statistics drain()
///           computes, on the thread that drains.
/// Threads:  push, push_value and lose from any, drain from one.
/// Cost:     a push is a copy into memory that is already mapped: no lock, no system call.

#include <array>
#include <atomic>
#include <cstdint>

#include "cupti/stats/compute.h"
#include "cupti/stats/tile/layout.h"
#include "format/model/events.h"
#include "interposer/core/queue/event_pack.h"
#include "interposer/core/queue/ring_merge.h"
#include "interposer/core/runtime/wakeup.h"

namespace convtrace::engine {

/// Values that wait fill at most half of it; the other half is enough for 30,000 launches. A writer
/// thread that shares its processor with eight other threads drains the ring a few times a second.
inline constexpr size_t kEventRingBytes = size_t{8} << 20;

/// Copying so much takes about a tenth of the time that its statistics take (1 us).
inline constexpr size_t kSmallValueBytes = 4096;

class EventQueue {
 public:
  /// @param wakeup  of the thread that drains; used when a ring is half full. Outlives the queue.
  explicit EventQueue(Wakeup& wakeup) : wakeup_(wakeup) {}

  /// Copies `event` with everything that it borrows, and sets its time and thread if they are 0.
  void push(const format::Event& event) noexcept;

  /// As push(), of a value whose hash, or statistics and samples, drain() computes from the elements
  /// as they are now.
  /// @param elements  of the value, flattened.
  /// @return false, with nothing pushed, if there are more than kSmallValueBytes, or if the ring is
  /// more than half full: a writer thread without a processor gets no work on top.
  [[nodiscard]] bool push_value(const format::TensorStats& value,
                                const stats::Layout& elements) noexcept;

  void lose(format::LossReason reason, uint64_t count = 1) noexcept {
    losses_[static_cast<size_t>(reason)].fetch_add(count, std::memory_order_relaxed);
  }

  using Losses = std::array<uint64_t, format::kEnumCount<format::LossReason>>;
  /// @return the losses since the last call, by reason.
  [[nodiscard]] Losses take_losses() noexcept;

  /// Passes waiting events to `take` in order of time. `take(const format::Event&)` returns whether
  /// to continue. An event's spans are valid during the call.
  /// @param horizon_ns  now_ns(), read before the call; ~0 to take all events.
  /// @return the number of events taken.
  template <typename Take>
  uint64_t drain(uint64_t horizon_ns, Take&& take) {
    return merge_.run(
        &ThreadContext::events, horizon_ns,
        [](const ByteRing::Record& record) { return packed_header(record.payload).t_ns; },
        [&](const ByteRing::Record& record) {
          return take(record.tag == kValueTag ? computed(record.payload)
                                              : unpack(record.tag, record.payload));
        });
  }

 private:
  static constexpr uint32_t kValueTag = std::variant_size_v<format::Event>;

  void commit(ThreadContext& context, std::byte* packed) noexcept;
  [[nodiscard]] format::Event computed(const std::byte* packed) noexcept;

  Wakeup& wakeup_;
  std::array<std::atomic<uint64_t>, format::kEnumCount<format::LossReason>> losses_{};
  RingMerge merge_;            ///< used by the thread that drains
  stats::StatsResult result_;  ///< result of the last call of computed(), to which its event points
};

}  // namespace convtrace::engine

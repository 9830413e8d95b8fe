#pragma once
/// @file spent_time.h
/// Measures how much of the program's time calls of convtrace take.
///
/// Threads:  any. A call reads the clock twice.

#include <atomic>
#include <cstdint>

#include "format/base/clock.h"

namespace convtrace::engine {

class SpentTime {
 public:
  /// Measures one call, from construction to destruction.
  class Call {
   public:
    explicit Call(SpentTime& spent) noexcept : spent_(spent) {}
    ~Call() { spent_.add(now_ns() - start_); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    SpentTime& spent_;
    const uint64_t start_ = now_ns();
  };

  void add(uint64_t ns) noexcept { ns_.fetch_add(ns, std::memory_order_relaxed); }

  /// @return nanoseconds, over all threads.
  [[nodiscard]] uint64_t total() const noexcept { return ns_.load(std::memory_order_relaxed); }

  /// @return nanoseconds since the last take().
  uint64_t take() noexcept {
    const uint64_t now = total();
    return now - taken_.exchange(now, std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> ns_{0}, taken_{0};
};

}  // namespace convtrace::engine

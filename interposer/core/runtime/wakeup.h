#pragma once
/// @file wakeup.h
/// Wakes a sleeping thread. Costs one atomic exchange if the thread does not sleep.
///
/// Threads:  wake() from any, wait() from one. wake() never blocks.
/// Source:   futex(2); std::atomic::wait has no timeout.

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace convtrace::engine {

class Wakeup {
 public:
  void wake() noexcept {
    if (word_.exchange(1, std::memory_order_release) == 0)
      syscall(SYS_futex, address(), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

  /// Returns after a wake(), also one before the call, or after `timeout_ns`.
  void wait(uint64_t timeout_ns) noexcept {
    if (word_.exchange(0, std::memory_order_acquire) == 1) return;
    const timespec timeout{static_cast<time_t>(timeout_ns / 1'000'000'000),
                           static_cast<long>(timeout_ns % 1'000'000'000)};
    syscall(SYS_futex, address(), FUTEX_WAIT_PRIVATE, 0, &timeout, nullptr, 0);
    word_.store(0, std::memory_order_relaxed);
  }

 private:
  uint32_t* address() noexcept { return reinterpret_cast<uint32_t*>(&word_); }
  std::atomic<uint32_t> word_{0};
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
};

}  // namespace convtrace::engine

#pragma once
/// @file helper_threads.h
/// Threads that take a share of one loop.
///
/// Why:      between two operators of a training step the program's own threads are idle; a large
///           tensor is then done in a fraction of the time. The caller works too, and waits only
///           for turns that a helper has begun, so that it is never worse off than alone.
/// Threads:  for_each() from any; while one caller has the helpers, others work alone.
/// Errors:   none: with fewer threads, or none, all the same is done.

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <type_traits>

namespace convtrace::stats {

class HelperThreads {
 public:
  static constexpr uint32_t kMost = 3;

  /// @param count  helpers beside the caller, at most kMost. They are started when first needed.
  explicit HelperThreads(uint32_t count);
  ~HelperThreads();
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;

  /// @return how many run.
  [[nodiscard]] uint32_t started() const noexcept { return started_.load(); }
  /// Ends the helpers, unless they are at work; the next loop starts them again.
  void rest() noexcept;

  /// Calls work(0) ... work(turns - 1), each once, in no order, several at a time.
  template <typename Work>
  void for_each(uint32_t turns, Work& work) noexcept {
    const auto call = [](void* object, uint32_t turn) { (*static_cast<Work*>(object))(turn); };
    share({call, const_cast<std::remove_const_t<Work>*>(&work), turns});
  }

 private:
  struct Loop {
    void (*call)(void*, uint32_t);
    void* work;
    uint32_t turns;
  };

  static void* main(void* self) noexcept;
  void share(const Loop& loop) noexcept;
  void take_turns() noexcept;
  void help() noexcept;
  void start() noexcept;
  void end() noexcept;

  const uint32_t wanted_;
  std::array<pthread_t, kMost> threads_{};
  std::atomic<uint32_t> started_{0};
  std::atomic<bool> taken_{false};  ///< a caller uses the threads
  Loop loop_{};                     ///< the loop of that caller
  std::atomic<uint32_t> next_{0};
  std::atomic<bool> open_{false};    ///< loop_ may be worked on
  std::atomic<uint32_t> active_{0};  ///< helpers that may be at loop_
  std::atomic<uint32_t> calls_{0};   ///< changes when helpers are wanted
  std::atomic<bool> stopping_{false};
};

}  // namespace convtrace::stats

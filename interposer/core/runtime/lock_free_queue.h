#pragma once
/// @file lock_free_queue.h
/// Things that pass from some threads to others without a lock, so that nobody ever waits for a
/// thread that has been put aside while it held one.
///
/// Threads:  any on both sides.
/// Order:    what one thread puts in comes out in that order.

#include <atomic>
#include <memory>

namespace convtrace::engine {

/// @tparam T  has a member `std::unique_ptr<T> next`, which is the list's while it is in there.
template <typename T>
class LockFreeQueue {
 public:
  LockFreeQueue() = default;
  ~LockFreeQueue() { free_list(take_all()); }
  LockFreeQueue(const LockFreeQueue&) = delete;
  LockFreeQueue& operator=(const LockFreeQueue&) = delete;

  void put(std::unique_ptr<T> one) noexcept {
    T* const raw = one.release();
    T* top = newest_.load(std::memory_order_relaxed);
    do {
      (void)raw->next.release();
      raw->next.reset(top);
    } while (!newest_.compare_exchange_weak(top, raw, std::memory_order_release,
                                            std::memory_order_relaxed));
  }

  /// @return all that is there, the oldest first, as a list.
  [[nodiscard]] std::unique_ptr<T> take_all() noexcept {
    std::unique_ptr<T> rest(newest_.exchange(nullptr, std::memory_order_acquire));
    std::unique_ptr<T> turned;
    while (rest != nullptr) {
      std::unique_ptr<T> next = std::move(rest->next);
      rest->next = std::move(turned);
      turned = std::move(rest);
      rest = std::move(next);
    }
    return turned;
  }

  /// One by one: a long list that frees itself would need as deep a stack.
  static void free_list(std::unique_ptr<T> list) noexcept {
    while (list != nullptr) list = std::move(list->next);
  }

 private:
  std::atomic<T*> newest_{nullptr};
};

}  // namespace convtrace::engine

#pragma once
/// @file lock_free_queue.h
/// A lock-free queue between threads: no thread ever waits for one that was preempted while it held
/// a lock.
///
/// Threads:  any producers and any consumers.
/// Order:    items of one producer come out in their order.

#include <atomic>
#include <memory>

namespace convtrace::engine {

/// @tparam T  has a member `std::unique_ptr<T> next`, which belongs to the queue while the item is
/// in it.
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

  /// @return all items as a list, oldest first.
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

  /// Frees the items one by one: recursive destruction of a long list would overflow the stack.
  static void free_list(std::unique_ptr<T> list) noexcept {
    while (list != nullptr) list = std::move(list->next);
  }

 private:
  std::atomic<T*> newest_{nullptr};
};

}  // namespace convtrace::engine

#pragma once
/// @file slot_queue.h
/// A queue of slots from one thread to another.
///
/// Place:    used by result_ring.h.
/// Threads:  push() on one thread, pop() on one thread; the rest on both.

#include <atomic>
#include <cstdint>
#include <vector>

namespace convtrace::cupti {

class SlotQueue {
 public:
  void allocate(uint32_t slots) { slots_ = std::vector<uint32_t>(slots); }
  void push(uint32_t slot) noexcept {
    const uint64_t end = end_.load(std::memory_order_relaxed);
    slots_[end % slots_.size()] = slot;
    end_.store(end + 1, std::memory_order_release);
  }
  void pop() noexcept { begin_.fetch_add(1, std::memory_order_release); }
  [[nodiscard]] uint32_t at(uint64_t position) const noexcept {
    return slots_[position % slots_.size()];
  }
  [[nodiscard]] uint64_t begin() const noexcept { return begin_.load(std::memory_order_acquire); }
  [[nodiscard]] uint64_t end() const noexcept { return end_.load(std::memory_order_acquire); }
  [[nodiscard]] uint64_t size() const noexcept {
    const uint64_t begin = this->begin();
    return end() - begin;
  }

 private:
  std::vector<uint32_t> slots_;
  std::atomic<uint64_t> begin_{0}, end_{0};
};

}  // namespace convtrace::cupti

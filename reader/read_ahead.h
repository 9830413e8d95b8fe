#pragma once
/// @file read_ahead.h
/// Processes numbered items on several threads and returns them in order.
///
/// Place:    chunk_stream.cpp, to decode chunks ahead of the consumer.
/// Threads:  one owner thread, which also processes items while it waits. With one thread there is
///           no other.
/// Memory:   as many slots as were given; no item beyond them is processed ahead.
/// Errors:   none of its own; `fill` must not throw. If threads cannot be created, fewer are used.

#include <condition_variable>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "format/base/mutex.h"

namespace convtrace::reader {

template <typename Slot>
class ReadAhead {
 public:
  using Slots = std::vector<std::unique_ptr<Slot>>;
  using Fill = std::function<void(size_t item, Slot& slot)>;

  /// @param slots  at least one; item n is processed in slot n modulo their number.
  /// @param fill   called once for each item, on any thread.
  ReadAhead(Slots slots, unsigned threads, Fill fill)
      : slots_(std::move(slots)), filled_(slots_.size()), fill_(std::move(fill)) {
    try {
      while (workers_.size() + 1 < threads) workers_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
    }
  }

  ~ReadAhead() {
    {
      const Lock lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// Sets the number of items; never fewer than before.
  void set_count(size_t count) {
    {
      const Lock lock(mutex_);
      count_ = count;
    }
    changed_.notify_all();
  }

  /// @return the next item, processed and valid until the next call; null after the last.
  Slot* next() {
    Lock lock(mutex_);
    if (next_ == count_) return nullptr;
    const size_t place = next_ % slots_.size();
    released_ = next_++;  // the slots of all earlier items are free
    changed_.notify_all();
    while (!filled_[place]) {
      if (can_claim()) {
        fill_one(lock);
      } else {
        changed_.wait(lock);
      }
    }
    filled_[place] = false;
    return slots_[place].get();
  }

 private:
  [[nodiscard]] bool can_claim() const CONVTRACE_REQUIRES(mutex_) {
    return claimed_ < count_ && claimed_ < released_ + slots_.size();
  }

  /// @param lock  holds mutex_ and is released meanwhile; the analysis knows it by another name.
  void fill_one(Lock<Mutex>& lock) CONVTRACE_NOT_ANALYZED {
    const size_t item = claimed_++;
    const size_t place = item % slots_.size();
    lock.unlock();
    fill_(item, *slots_[place]);
    lock.lock();
    filled_[place] = true;
    changed_.notify_all();
  }

  void work() {
    Lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this]() CONVTRACE_REQUIRES(mutex_) { return stop_ || can_claim(); });
      if (stop_) return;
      fill_one(lock);
    }
  }

  Mutex mutex_;
  Slots slots_;
  std::vector<bool> filled_ CONVTRACE_GUARDED_BY(mutex_);
  Fill fill_;
  std::condition_variable_any changed_;
  size_t count_ CONVTRACE_GUARDED_BY(mutex_) = 0;     ///< number of items
  size_t claimed_ CONVTRACE_GUARDED_BY(mutex_) = 0;   ///< number of items that a thread has begun
  size_t released_ CONVTRACE_GUARDED_BY(mutex_) = 0;  ///< number of items whose slots are free
  size_t next_ CONVTRACE_GUARDED_BY(mutex_) = 0;      ///< the item to return next
  bool stop_ CONVTRACE_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> workers_;
};

}  // namespace convtrace::reader

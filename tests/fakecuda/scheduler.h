#pragma once
/// @file scheduler.h
/// Decides when the work of streams is done: in any order that CUDA allows, and as late as it
/// allows, chosen by `FAKECUDA_SEED`. Without a seed, and while no stream is held, it is not used
/// and work is done at once.
///
/// The rules, with where CUDA's documentation has them (D: driver API, G: programming guide):
/// - Work of a stream is done in order. D "Stream synchronization behavior".
/// - The legacy stream waits for the blocking streams of its context, and they for it; a thread's
///   per-thread stream is a blocking one. D "Stream synchronization behavior".
/// - A stream that waits for an event waits for the work before the event's last record at the time
///   of the wait call. D cuStreamWaitEvent, cuEventRecord.
/// - Streams share connections to the device, `CUDA_DEVICE_MAX_CONNECTIONS` of them; later work of
///   a connection does not begin before earlier work. G "CUDA Environment Variables".
/// - The device begins on its own: work is done that no call has waited for.
/// - A launch waits while 1024 launches are unfinished. Not documented: measured on devices.
/// - A lost context does none of its remaining work. G "Error Checking", asynchronous errors.
///
/// Choices depend on the seed and on a number of the calling thread, and are made at each call of
/// the driver that may see progress of the device.
/// Threads:  any. One item is done at a time, under the lock.

#include <cuda.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "tests/fakecuda/objects.h"

namespace fakecuda {

class Scheduler {
 public:
  Scheduler();

  [[nodiscard]] bool is_seeded() const { return seeded_; }
  [[nodiscard]] bool is_active() const { return seeded_ || held_once_.load(); }
  [[nodiscard]] uint64_t seed() const { return seed_; }
  /// @return a number from the seed and the calling thread; 0 without a seed.
  [[nodiscard]] uint64_t draw() const;

  /// Adds work to a stream. @param behind  other work to wait for; 0: none. @return its number.
  uint64_t add(CUstream stream, Work work, uint64_t behind = 0);
  /// The device does some of its work, or none.
  void step();

  [[nodiscard]] bool is_pending(uint64_t number);
  [[nodiscard]] bool is_busy(CUstream stream);
  void wait(uint64_t number);
  void wait(CUstream stream);
  /// @param context  null: all contexts.
  void wait_all(CUcontext context = nullptr);
  /// The context ends: some of its work is done, the rest never.
  void end(CUcontext context);

  /// See fakecuda_connections().
  void set_connections(uint64_t count);
  /// See fakecuda_hold().
  void hold(CUstream stream);
  void release(CUstream stream);

 private:
  struct Item {
    Work work;
    std::vector<uint64_t> behind;
    uint64_t stream = 0;
    CUcontext context = nullptr;
    bool blocking = false;
    bool begun = false;
    uint64_t unfinished = 0;  ///< see fakecuda_launch
  };
  using Lock = std::unique_lock<std::mutex>;
  using Numbers = std::set<uint64_t>;

  [[nodiscard]] uint64_t connection(const Item& item) const { return item.stream % connections_; }
  [[nodiscard]] std::vector<uint64_t> behind_what(CUstream stream) const;
  [[nodiscard]] Numbers with_all_before(std::vector<uint64_t> numbers) const;
  [[nodiscard]] std::vector<uint64_t> runnable() const;
  uint64_t choose(const Numbers& needed) const;
  void run(uint64_t number);
  void finish(uint64_t number);
  void run_all();
  void run_until(Lock& lock, const std::vector<uint64_t>& numbers,
                 const std::function<bool()>& over);
  void wait_for(Lock& lock, const std::vector<uint64_t>& numbers);
  [[noreturn]] void stuck() const;
  void start_device();
  void be_device();

  bool seeded_ = false;
  uint64_t seed_ = 0;
  uint64_t connections_ = 1;
  std::atomic<bool> held_once_{false};

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t last_ = 0;
  std::map<uint64_t, Item> pending_;                 ///< by number
  std::map<uint64_t, std::deque<uint64_t>> queues_;  ///< by stream, in order; none is empty
  std::set<uint64_t> held_;
  size_t launches_ = 0;
  uint64_t finished_ = 0;
  bool device_started_ = false;
};

Scheduler& scheduler();

}  // namespace fakecuda

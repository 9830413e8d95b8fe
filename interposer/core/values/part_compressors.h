#pragma once
/// @file part_compressors.h
/// Parts of values on their way: filled by the program's threads, compressed by threads of ours,
/// appended by the writer thread.
///
/// Place:    inside value_store.h, which decides what is stored and counts the memory.
/// Threads:  put() and drop() from any; take_finished() and written() from the writer thread. The
///           threads that compress have a lower priority than the program's, so they share no lock
///           with them: one that is put aside would hold up all that wait for it.
/// Memory:   whoever fills a part makes it and the writer thread frees it, since an allocator's
///           lock is one, too.
/// Errors:   a part that cannot be compressed comes out without a payload.

#include <pthread.h>
#include <semaphore.h>

#include <atomic>
#include <memory>
#include <vector>

#include "format/base/mutex.h"
#include "format/values/part_encoder.h"
#include "interposer/core/runtime/lock_free_queue.h"
#include "interposer/core/runtime/wakeup.h"
#include "interposer/core/values/value_history.h"

namespace convtrace::engine {

/// What all parts of a value have in common.
struct StoredValue {
  format::ContentId content;
  format::ElementForm form;
  uint64_t place = 0;  ///< in the program, whatever the step
};

/// A part of a value on its way.
struct PartJob {
  std::shared_ptr<const StoredValue> value;
  std::shared_ptr<ValuePart> part;
  uint64_t offset = 0;
  std::shared_ptr<const ValuePart> base;  ///< null: none
  uint64_t base_hash = 0;
  std::vector<std::byte> payload;  ///< empty: it could not be compressed
  bool base_was_useless = false;
  std::unique_ptr<PartJob> next;
};

class PartCompressors {
 public:
  /// @param wakeup  of the writer, woken at each part that is compressed. Outlives this.
  explicit PartCompressors(Wakeup& wakeup);
  ~PartCompressors();
  PartCompressors(const PartCompressors&) = delete;
  PartCompressors& operator=(const PartCompressors&) = delete;

  /// Starts up to `count` threads, once. @return whether there is one, and close() was not called.
  [[nodiscard]] bool start(uint32_t count);
  void put(std::unique_ptr<PartJob> job);

  /// @return a list, the oldest first.
  [[nodiscard]] std::unique_ptr<PartJob> take_finished() { return finished_.take_all(); }
  /// A part that was taken is appended, or given up.
  void written() { unwritten_.fetch_sub(1); }
  [[nodiscard]] bool all_compressed() const { return uncompressed_.load() == 0; }

  /// Compresses nothing more. @return false: it was closed before.
  bool close();
  [[nodiscard]] bool closed() const { return closed_.load(); }
  /// Of closed ones. Whoever puts a part in meanwhile does this, too, so that none is left
  /// uncounted. @return how many parts were put in and not written.
  [[nodiscard]] uint64_t drop();

 private:
  static void* main(void* self) noexcept;
  void work();
  [[nodiscard]] std::unique_ptr<PartJob> next_job();

  Wakeup& wakeup_;
  std::atomic<bool> closed_{false};
  LockFreeQueue<PartJob> jobs_;
  sem_t waiting_;  ///< counts those that nobody has taken up
  std::atomic<uint64_t> uncompressed_{0};
  std::atomic<uint64_t> unwritten_{0};
  LockFreeQueue<PartJob> finished_;

  Mutex taking_mutex_;  ///< between those who compress
  std::unique_ptr<PartJob> taken_ CONVTRACE_GUARDED_BY(taking_mutex_);

  Mutex threads_mutex_;  ///< never taken by who compresses
  std::vector<pthread_t> threads_ CONVTRACE_GUARDED_BY(threads_mutex_);
};

}  // namespace convtrace::engine

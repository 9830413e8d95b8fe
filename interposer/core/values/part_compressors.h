#pragma once
/// @file part_compressors.h
/// Carries parts of values from the program's threads, which fill them, over convtrace's compressor
/// threads to the writer thread, which appends them.
///
/// Place:    used by value_store.h, which decides what is stored and counts the memory.
/// Threads:  put() and drop() on any; take_finished() and written() on the writer thread. The
///           compressors have a lower priority than the program's threads and share no lock with
///           them, since a compressor that is preempted inside a lock would hold up every thread
///           that waits for it.
/// Memory:   the thread that fills a part allocates it, and the writer thread frees it, because an
///           allocator's lock counts as a lock, too.
/// Errors:   a part whose compression fails comes out without a payload.

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

/// The data that all parts of a value share.
struct StoredValue {
  format::ContentId content;
  format::ElementForm form;
  uint64_t place = 0;  ///< position in the program, without the step
};

/// A part of a value between filling and writing.
struct PartJob {
  std::shared_ptr<const StoredValue> value;
  std::shared_ptr<ValuePart> part;
  uint64_t offset = 0;
  std::shared_ptr<const ValuePart> base;  ///< the same part of the previous value; null: none
  uint64_t base_hash = 0;
  std::vector<std::byte> payload;  ///< empty: compression failed
  bool base_was_useless = false;
  std::unique_ptr<PartJob> next;
};

class PartCompressors {
 public:
  /// @param wakeup  of the writer thread, woken for each part that is compressed. Outlives this.
  explicit PartCompressors(Wakeup& wakeup);
  ~PartCompressors();
  PartCompressors(const PartCompressors&) = delete;
  PartCompressors& operator=(const PartCompressors&) = delete;

  /// Starts up to `count` threads, once. @return whether there is one, and close() was not called
  /// before.
  [[nodiscard]] bool start(uint32_t count);
  void put(std::unique_ptr<PartJob> job);

  /// @return the compressed parts as a list, oldest first.
  [[nodiscard]] std::unique_ptr<PartJob> take_finished() { return finished_.take_all(); }
  /// Call when a part from take_finished() was appended or dropped.
  void written() { unwritten_.fetch_sub(1); }
  [[nodiscard]] bool all_compressed() const { return uncompressed_.load() == 0; }

  /// Ends compression. @return false if it was ended before.
  bool close();
  [[nodiscard]] bool closed() const { return closed_.load(); }
  /// Drops the parts after close(). A thread that puts in a part meanwhile calls this, too, so that
  /// no part is left uncounted. @return the number of parts that were put in and not written.
  [[nodiscard]] uint64_t drop();

 private:
  static void* main(void* self) noexcept;
  void work();
  [[nodiscard]] std::unique_ptr<PartJob> next_job();

  Wakeup& wakeup_;
  std::atomic<bool> closed_{false};
  LockFreeQueue<PartJob> jobs_;
  sem_t waiting_;  ///< counts parts that no compressor has taken
  std::atomic<uint64_t> uncompressed_{0};
  std::atomic<uint64_t> unwritten_{0};
  LockFreeQueue<PartJob> finished_;

  Mutex taking_mutex_;  ///< locked by compressors only
  std::unique_ptr<PartJob> taken_ CONVTRACE_GUARDED_BY(taking_mutex_);

  Mutex threads_mutex_;  ///< never locked by compressors
  std::vector<pthread_t> threads_ CONVTRACE_GUARDED_BY(threads_mutex_);
};

}  // namespace convtrace::engine

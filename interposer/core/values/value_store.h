#pragma once
/// @file value_store.h
/// Decides which tensor values are stored, within a limit of memory. The program's threads copy
/// values in, the writer thread appends them to the trace; part_compressors.h is between the two.
///
/// Bounded:  memory_bytes in all. One third is for values on their way, one third for what each of
///           these needs beside itself (its compressed form; a former value that it is compared
///           with and that is not kept any more), one third for the values that later ones are
///           compared with. When the first third is full, CONVTRACE_SNAPSHOT_FULL decides what
///           happens to another value.
/// Place:    the observer's port stores CPU tensors, cupti/ device tensors; the writer thread takes
///           them out.
/// Threads:  begin(), has(), take() on any; write(), settle() and close() on the writer thread.
/// Errors:   lack of memory or threads is a return value. A value whose compression fails is
///           counted.

#include <condition_variable>
#include <memory>
#include <set>
#include <utility>

#include "cupti/stats/tile/layout.h"
#include "cupti/values/value_sink.h"
#include "format/base/mutex.h"
#include "format/file/trace_writer.h"
#include "format/model/event_sink.h"
#include "format/settings/settings.h"
#include "interposer/core/runtime/wakeup.h"
#include "interposer/core/values/part_compressors.h"
#include "interposer/core/values/value_history.h"

namespace convtrace::engine {

class ValueStore final : public cupti::ValueSink {
 public:
  struct Options {
    uint64_t memory_bytes = 0;
    uint32_t threads = 1;
    settings::WhenFull when_full = settings::WhenFull::kDegrade;
    uint64_t patience_ns = 10'000'000'000;  ///< the longest wait of kBlock
  };

  /// @param wakeup  of the writer thread, woken when there is something to write. @param sink  of
  /// losses.
  /// Both outlive this.
  ValueStore(const Options& options, Wakeup& wakeup, format::EventSink& sink);
  ~ValueStore() override;
  ValueStore(const ValueStore&) = delete;
  ValueStore& operator=(const ValueStore&) = delete;

  enum class Outcome : uint8_t { kStored, kStatsOnly, kLeftOut };

  /// Copies the tensor for which `event` (complete) was computed. Counts the value if it cannot be
  /// stored.
  Outcome take(const format::TensorStats& event, const stats::Layout& layout) noexcept;
  [[nodiscard]] bool has(const format::TensorStats& event) noexcept override;
  [[nodiscard]] Begun begin(const format::TensorStats& event) noexcept override;
  [[nodiscard]] bool refuse() noexcept override;

  /// Appends compressed parts for about `turn_ns`, at least one. The time is limited because the queue of
  /// events is not drained meanwhile. Wakes the writer thread if more are left. After an error or at the
  /// limit, close() handles the rest.
  /// @param max_bytes  of the trace; stops when it is that large.
  [[nodiscard]] Status write(format::TraceWriter& trace, uint64_t max_bytes, uint64_t turn_ns);
  /// Waits until every part is compressed or written. @return false after `timeout_ns`.
  bool settle(uint64_t timeout_ns);
  /// Accepts no further values. Values on their way are dropped and counted as `reason`.
  void close(format::LossReason reason) noexcept;

 private:
  class Incoming;
  /// Counts a value that is not stored, by the policy `when_full`.
  Outcome refused() noexcept { return refuse() ? Outcome::kStatsOnly : Outcome::kLeftOut; }
  [[nodiscard]] std::unique_ptr<cupti::IncomingValue> wait_for_room(
      const format::TensorStats& event) noexcept;
  [[nodiscard]] bool nothing_under_way();
  void finish(const PartJob& job) noexcept;
  void drop_parts(format::LossReason reason) noexcept;
  void lose(format::LossReason reason, uint64_t count) noexcept;
  void release(uint64_t bytes) noexcept CONVTRACE_REQUIRES(mutex_);
  void forget(const format::ContentId& content) noexcept CONVTRACE_REQUIRES(mutex_);

  const Options options_;
  const uint64_t max_under_way_;
  Wakeup& wakeup_;
  format::EventSink& sink_;

  Mutex mutex_;  ///< locked briefly, never by compressors
  std::condition_variable_any room_;
  uint64_t reserved_ CONVTRACE_GUARDED_BY(mutex_) = 0;
  /// A thread has waited in vain, and no memory was freed since.
  bool out_of_patience_ CONVTRACE_GUARDED_BY(mutex_) = false;
  uint32_t incoming_ CONVTRACE_GUARDED_BY(mutex_) = 0;  ///< values that are being filled
  std::set<std::pair<uint64_t, uint64_t>> known_ CONVTRACE_GUARDED_BY(mutex_);  ///< hash and bytes
  ValueHistory history_ CONVTRACE_GUARDED_BY(mutex_);

  PartCompressors compressors_;
  std::unique_ptr<PartJob> writing_;  ///< used by the writer thread only
};

}  // namespace convtrace::engine

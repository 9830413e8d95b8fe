#pragma once
/// @file value_store.h
/// Which values of tensors are stored, and in how much memory: copied by the program's threads,
/// appended by the writer thread. What happens in between is part_compressors.h.
///
/// Bounded:  memory_bytes in all. A third is for values on their way, a third for what each of
///           those needs beside itself (what it is compressed to; what it is compared with, if that
///           is no longer kept), a third for those that the next are compared with. When the first
///           is full, what happens to a further value is the user's choice
///           (CONVTRACE_SNAPSHOT_FULL).
/// Place:    the observer's port puts CPU tensors in, cupti/ device tensors; the writer thread
///           takes out.
/// Threads:  begin(), has(), take() from any; write(), settle() and close() from the writer thread.
/// Errors:   no memory and no thread are answers. A value that cannot be compressed is counted.

#include <condition_variable>
#include <memory>
#include <optional>
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
    uint64_t patience_ns = 10'000'000'000;  ///< of kBlock
  };

  /// @param wakeup  of the writer, woken when something can be written. @param sink  of losses.
  /// Both outlive this.
  ValueStore(const Options& options, Wakeup& wakeup, format::EventSink& sink);
  ~ValueStore() override;
  ValueStore(const ValueStore&) = delete;
  ValueStore& operator=(const ValueStore&) = delete;

  enum class Outcome : uint8_t { kStored, kStatsOnly, kLeftOut };

  /// Takes a copy of the tensor that `event` (complete) was computed of. What becomes of it
  /// otherwise is counted here.
  Outcome take(const format::TensorStats& event, const stats::Layout& layout) noexcept;
  [[nodiscard]] bool has(const format::TensorStats& event) noexcept override;
  [[nodiscard]] Begun begin(const format::TensorStats& event) noexcept override;
  [[nodiscard]] bool refuse() noexcept override;

  /// Appends what is compressed, for about `turn_ns` and one part at least: meanwhile nobody
  /// empties the queue of events. The writer is woken if there is more. What is not appended after
  /// an error or at the limit is left to close().
  /// @param max_bytes  of the trace: stops when it is that large.
  [[nodiscard]] Status write(format::TraceWriter& trace, uint64_t max_bytes, uint64_t turn_ns);
  /// Waits until nothing is under way but what write() would append. @return false: `timeout_ns`
  /// have passed before.
  bool settle(uint64_t timeout_ns);
  /// Accepts no further value. Values under way are given up and counted as `reason`.
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

  Mutex mutex_;  ///< held for moments, never by who compresses
  std::condition_variable_any room_;
  uint64_t reserved_ CONVTRACE_GUARDED_BY(mutex_) = 0;
  /// Somebody has waited in vain, and no room was made since.
  bool out_of_patience_ CONVTRACE_GUARDED_BY(mutex_) = false;
  uint32_t incoming_ CONVTRACE_GUARDED_BY(mutex_) = 0;  ///< values that are being filled
  std::set<std::pair<uint64_t, uint64_t>> known_ CONVTRACE_GUARDED_BY(mutex_);  ///< hash and bytes
  ValueHistory history_ CONVTRACE_GUARDED_BY(mutex_);

  PartCompressors compressors_;
  std::unique_ptr<PartJob> writing_;  ///< of the writer thread alone
};

}  // namespace convtrace::engine

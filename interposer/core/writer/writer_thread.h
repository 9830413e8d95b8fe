#pragma once
/// @file writer_thread.h
/// The one thread of the engine: sleeps, empties the queue into the trace, and closes it at the
/// end.
///
/// Threads:  start from any, finish from one after it; all signals are blocked in the thread
///           itself.
/// Errors:   a failed write ends tracing with one line; the host goes on.
/// Timing:   an event is in the page cache at the latest 1 s after it happened, an error-level
///           finding at once.

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "format/file/trace_writer.h"
#include "format/model/meta.h"
#include "interposer/core/queue/event_queue.h"
#include "interposer/core/runtime/state.h"
#include "interposer/core/runtime/wakeup.h"
#include "interposer/core/writer/flight_recorder.h"

namespace convtrace::engine {

/// A trace ready to be written, and how large it may become.
struct OpenTrace {
  std::unique_ptr<format::TraceWriter> writer;  ///< null: the reason was logged, tracing is over
  std::string path;
  uint64_t max_bytes = ~uint64_t{0};
  std::unique_ptr<FlightRecorder> recorder;  ///< null: all events are written as they come
  bool all_values = false;                   ///< --all: the size of the values of a step is logged
  bool announced = false;  ///< the path was logged at the start, so a summary follows at the end
};

/// What the writer thread asks of the engine, on its own thread.
class WriterClient {
 public:
  virtual ~WriterClient() = default;
  virtual OpenTrace open_trace() = 0;
  /// Before the queue is emptied: puts into it what waits elsewhere, no more than has room there.
  /// @return whether there is more.
  virtual bool before_drain() = 0;
  /// Appends values whose bytes are ready. @param last  waits for those under way, not for ever.
  virtual Status write_values(format::TraceWriter& writer, uint64_t max_bytes, bool last) = 0;
  /// The trace gets nothing any more. @param reason  why it lacks what was under way.
  virtual void give_up_values(format::LossReason reason) noexcept = 0;
  /// @return META again if facts were added since the last call.
  virtual std::optional<format::TraceMeta> changed_meta() = 0;
  /// @return what an event that was just written shows to be wrong, valid until the next call.
  virtual std::span<const format::Finding> judge(const format::Event& event) noexcept = 0;
  /// @return nanoseconds of the program's threads in calls of the observer, since the last call.
  virtual uint64_t take_host_ns() noexcept = 0;
};

class WriterThread {
 public:
  /// All of it outlives the thread.
  WriterThread(State& state, EventQueue& queue, Wakeup& wakeup, WriterClient& client)
      : state_(state), queue_(queue), wakeup_(wakeup), client_(client) {}

  /// @return false if the thread cannot be made.
  [[nodiscard]] bool start() noexcept;
  [[nodiscard]] bool started() const noexcept { return started_.load(std::memory_order_acquire); }

  /// Has the flight recorder, if there is one, write what it keeps.
  /// @param reason static storage.
  void trigger(const char* reason) noexcept {
    trigger_.store(reason, std::memory_order_release);
    wakeup_.wake();
  }

  /// @return how many triggers have been answered. For signal handlers.
  [[nodiscard]] uint32_t triggers_handled() const noexcept { return triggers_handled_.load(); }

  /// Writes what is queued, closes the trace and waits for that.
  /// @pre started().
  /// @return false if `deadline_ns` (a duration) passed first: the trace is left unclosed.
  bool finish(uint64_t deadline_ns) noexcept;

 private:
  static void* main(void* self) noexcept;
  void run();
  /// @return whether to go on.
  bool round(OpenTrace& trace, bool last);
  bool drain_all(OpenTrace& trace, bool last);
  bool drain(OpenTrace& trace, bool last);
  /// An event, and what it shows to be wrong.
  bool record(OpenTrace& trace, const format::Event& event);
  /// Into the trace, or into the flight recorder.
  bool put(OpenTrace& trace, const format::Event& event);
  bool append_losses(format::TraceWriter& writer);
  void count(const OpenTrace& trace, const format::Event& event);
  void say(const OpenTrace& trace, const format::Finding& finding) const;
  void say_expected_bytes(const OpenTrace& trace);
  void say_end(const OpenTrace& trace) const;
  bool append_cost(OpenTrace& trace, bool last);
  void close(OpenTrace& trace);
  void stop_at_budget(OpenTrace& trace);
  void stop_after_failure(const OpenTrace& trace);

  State& state_;
  EventQueue& queue_;
  Wakeup& wakeup_;
  WriterClient& client_;
  std::atomic<bool> started_{false};
  std::atomic<bool> finishing_{false};
  std::atomic<const char*> trigger_{nullptr};
  std::atomic<uint32_t> triggers_handled_{0};
  uint64_t steps_ = 0;        ///< begun
  uint64_t value_bytes_ = 0;  ///< of values to be stored, before compression
  bool bytes_said_ = false;
  bool cut_off_ = false;              ///< at max_bytes
  uint64_t findings_ = 0;             ///< of level error, not suppressed
  bool cpu_unwatched_ = false;        ///< allocations of CPU tensors, from somewhere on
  std::optional<uint32_t> nan_step_;  ///< the first with a NaN or a positive infinity
  bool urgent_ = false;               ///< something that must not wait for its chunk to fill
  pthread_t thread_{};
  bool joined_ = false;
  uint64_t lost_ = 0;
  uint64_t recorded_ = 0;  ///< events since the last Cost
  uint64_t cost_t_ns_ = 0;
  uint64_t cost_bytes_ = 0;
};

}  // namespace convtrace::engine

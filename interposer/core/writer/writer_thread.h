#pragma once
/// @file writer_thread.h
/// The engine's writer thread: moves events from the queue into the trace, and closes the trace at
/// the end.
///
/// Threads:  start() on any, finish() on one after that. All signals are blocked in the thread
///           itself.
/// Pause:    pause() ends the thread and keeps the trace open, resume() starts it again: a program
///           that forks gets a warning from Python 3.12 and later if it has more than one thread.
/// Errors:   a failed write ends tracing with one line; the host continues.
/// Timing:   an event is in the page cache at the latest 1 s after it happened, an error-level
///           finding at once.

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "format/file/file_thread.h"
#include "format/file/trace_writer.h"
#include "format/model/meta.h"
#include "interposer/core/queue/event_queue.h"
#include "interposer/core/runtime/state.h"
#include "interposer/core/runtime/wakeup.h"
#include "interposer/core/writer/flight_recorder.h"

namespace convtrace::engine {

/// A trace that is ready to be written, with its limit of size.
struct OpenTrace {
  std::unique_ptr<format::TraceWriter> writer;  ///< null: the reason was logged, tracing is over
  std::string path;
  std::shared_ptr<format::FileThread> file;  ///< null: the trace is no file
  uint64_t max_bytes = ~uint64_t{0};
  std::unique_ptr<FlightRecorder> recorder;  ///< null: all events are written as they come
  bool all_values = false;                   ///< --all: the size of the values of a step is logged
  bool announced = false;  ///< the path was logged at the start, so a summary follows at the end
};

/// The functions of the engine that the writer thread calls.
class WriterClient {
 public:
  virtual ~WriterClient() = default;
  virtual OpenTrace open_trace() = 0;
  /// Called before the queue is drained: puts in events that wait elsewhere, as many as have room.
  /// @return whether there are more.
  virtual bool before_drain() = 0;
  /// Appends compressed values. @param last  waits, for a limited time, for values on their way.
  virtual Status write_values(format::TraceWriter& writer, uint64_t max_bytes, bool last) = 0;
  /// Nothing more is appended to the trace. @param reason  of loss, for the values on their way.
  virtual void give_up_values(format::LossReason reason) noexcept = 0;
  /// @return META if facts were added since the last call. Renames the trace if the rank was one.
  virtual std::optional<format::TraceMeta> changed_meta(OpenTrace& trace) = 0;
  /// @return the findings that the event just written causes, valid until the next call.
  virtual std::span<const format::Finding> judge(const format::Event& event) noexcept = 0;
  /// @return the time in ns that the program's threads spent in calls of the observer since the
  /// last call.
  virtual uint64_t take_host_ns() noexcept = 0;
};

class WriterThread {
 public:
  /// All references outlive the thread.
  WriterThread(State& state, EventQueue& queue, Wakeup& wakeup, WriterClient& client)
      : state_(state), queue_(queue), wakeup_(wakeup), client_(client) {}

  /// @return false if the thread cannot be created.
  [[nodiscard]] bool start() noexcept;
  [[nodiscard]] bool started() const noexcept {
    return life_.load(std::memory_order_acquire) != Life::kNone;
  }

  /// Makes the flight recorder, if there is one, write the events that it keeps.
  /// @param reason static storage.
  void trigger(const char* reason) noexcept {
    trigger_.store(reason, std::memory_order_release);
    wakeup_.wake();
  }

  /// @return the number of triggers that were handled. For signal handlers.
  [[nodiscard]] uint32_t triggers_handled() const noexcept { return triggers_handled_.load(); }

  /// Lets the thread write the queued events and end, and waits until it has ended. After `deadline_ns`
  /// (a duration) the thread continues, and is not asked again before it has completed a round: a disk
  /// that does not respond delays one fork, not each.
  /// @pre the process has no other threads, so that no call of this class runs meanwhile.
  void pause(uint64_t deadline_ns) noexcept;
  [[nodiscard]] bool paused() const noexcept {
    return life_.load(std::memory_order_acquire) == Life::kPaused;
  }
  [[nodiscard]] bool running() const noexcept {
    return life_.load(std::memory_order_acquire) == Life::kRunning;
  }
  /// Starts the thread again if it is paused. From any thread; one load if it is not.
  void resume() noexcept {
    if (paused()) restart();
  }

  /// Writes all queued events, closes the trace and waits until that is done.
  /// @pre started().
  /// @return false if `deadline_ns` (a duration) passed first: the trace is left unclosed.
  bool finish(uint64_t deadline_ns) noexcept;

 private:
  enum class Life : uint8_t {
    kNone,      ///< not started
    kStarting,  ///< start() or resume() is making the thread
    kRunning,
    kPausing,  ///< it is to end, and has not decided to yet
    kPaused,
    kOver,  ///< for good
  };

  static void* main(void* self) noexcept;
  bool make_thread() noexcept;
  void restart() noexcept;
  /// @return whether the thread ends because it is paused.
  bool run();
  /// @return whether the thread was joined within `deadline_ns`.
  bool join(uint64_t deadline_ns) noexcept;
  /// @return whether to continue.
  bool round(OpenTrace& trace, bool last);
  bool drain_all(OpenTrace& trace, bool last);
  bool drain(OpenTrace& trace, bool last);
  /// Writes an event and the findings that it causes.
  bool record(OpenTrace& trace, const format::Event& event);
  /// Puts an event into the trace, or into the flight recorder.
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
  std::atomic<Life> life_{Life::kNone};
  std::optional<OpenTrace> trace_;  ///< from the thread's first moment on, also while it is paused
  std::atomic<bool> late_{false};   ///< pause() has waited in vain, and no round has ended since
  std::atomic<bool> finishing_{false};
  std::atomic<const char*> trigger_{nullptr};
  std::atomic<uint32_t> triggers_handled_{0};
  uint64_t steps_ = 0;        ///< steps that have begun
  uint64_t value_bytes_ = 0;  ///< size of the stored values before compression
  bool bytes_said_ = false;
  bool cut_off_ = false;        ///< the trace has reached max_bytes
  uint64_t findings_ = 0;       ///< findings of level error, not suppressed
  uint64_t warnings_ = 0;       ///< findings of level warning, not suppressed
  bool cpu_unwatched_ = false;  ///< allocations of CPU tensors are not reported from some step on
  std::optional<uint32_t> nan_step_;  ///< the first step with a NaN or a positive infinity
  bool urgent_ = false;  ///< something was written that must not wait until its chunk is full
  pthread_t thread_{};
  uint64_t lost_ = 0, missing_ = 0;  ///< not recorded; of these, what would have been
  uint64_t recorded_ = 0;            ///< events since the last Cost
  uint64_t cost_t_ns_ = 0;
  uint64_t cost_bytes_ = 0;
};

}  // namespace convtrace::engine

#include "interposer/core/writer/writer_thread.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cinttypes>

#include "format/base/background_thread.h"
#include "format/base/clock.h"
#include "format/base/count_noun.h"
#include "format/base/log.h"
#include "interposer/core/runtime/guarded.h"

namespace convtrace::engine {
namespace {

constexpr uint64_t kRoundNs = 10'000'000;
constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kFlushNs = kSecondNs;
constexpr uint64_t kCostNs = 5 * kSecondNs;
constexpr uint64_t kEverything = ~uint64_t{0};
/// The most drains in one round: enough for the results of four devices.
constexpr int kTurns = 64;

/// Higher priority than the program's threads, where that is allowed: the work is small (about 0.2
/// us an event, 1 us a small value), but events that it does not reach in time are lost.
constexpr int kNiceness = -5;

/// The number of error findings that are written to stderr.
constexpr uint64_t kSaid = 4;

constexpr timespec kNap{0, 50'000};

/// @return the length of a message's first sentence, which says what happened.
int first_sentence(std::string_view message) {
  return static_cast<int>(std::min(message.find(". "), message.size()));
}

}  // namespace

bool WriterThread::make_thread() noexcept {
  const bool made = start_background_thread(thread_, &WriterThread::main, this);
  life_.store(made ? Life::kRunning : Life::kOver, std::memory_order_release);
  return made;
}

bool WriterThread::start() noexcept {
  life_.store(Life::kStarting, std::memory_order_release);
  return make_thread();
}

void WriterThread::restart() noexcept {
  Life expected = Life::kPaused;
  if (!life_.compare_exchange_strong(expected, Life::kStarting) || make_thread()) return;
  state_.disable("no thread");
  log_line(messages::kNoThread,
           "cannot start a thread again; tracing is over, the program continues");
}

void WriterThread::pause(uint64_t deadline_ns) noexcept {
  Life expected = Life::kRunning;
  if (late_.load() || !life_.compare_exchange_strong(expected, Life::kPausing)) return;
  wakeup_.wake();
  bool joined = join(deadline_ns);
  late_.store(!joined);
  expected = Life::kPausing;
  if (life_.compare_exchange_strong(expected, joined ? Life::kOver : Life::kRunning)) return;
  // It has paused, perhaps in the last moment, and is only to leave.
  if (!joined) joined = join(deadline_ns / 10);
  if (!joined) pthread_detach(thread_);
}

bool WriterThread::finish(uint64_t deadline_ns) noexcept {
  const uint64_t begin = now_ns();
  finishing_.store(true, std::memory_order_release);
  resume();
  while (life_.load(std::memory_order_acquire) == Life::kStarting) {  // another thread resumes it
    if (now_ns() - begin > deadline_ns) return false;
    nanosleep(&kNap, nullptr);
  }
  if (life_.load(std::memory_order_acquire) == Life::kOver) return true;
  wakeup_.wake();
  const bool joined = join(deadline_ns);
  if (joined) life_.store(Life::kOver, std::memory_order_release);
  return joined;
}

bool WriterThread::join(uint64_t deadline_ns) noexcept {
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);  // the clock of pthread_timedjoin_np
  const uint64_t ns = static_cast<uint64_t>(until.tv_nsec) + deadline_ns;
  until.tv_sec += static_cast<time_t>(ns / kSecondNs);
  until.tv_nsec = static_cast<long>(ns % kSecondNs);
  return pthread_timedjoin_np(thread_, nullptr, &until) == 0;
}

void* WriterThread::main(void* self) noexcept {
  auto* const writer = static_cast<WriterThread*>(self);
  pthread_setname_np(pthread_self(), "convtrace");
  (void)setpriority(PRIO_PROCESS, 0, kNiceness);  // on Linux this changes the calling thread only
  const auto always = [](const State&) { return true; };
  const bool paused = guarded_if("writer", false, always, [writer] { return writer->run(); });
  if (paused) return nullptr;
  // Without a writer nothing drains the queue.
  writer->state_.disable("the writer thread has ended");
  writer->trace_.reset();
  return nullptr;
}

bool WriterThread::run() {
  if (!trace_) {
    trace_.emplace(client_.open_trace());
    cost_t_ns_ = now_ns();
  }
  OpenTrace& trace = *trace_;
  if (!trace.writer) return false;
  bool going = true;
  while (going && !finishing_.load(std::memory_order_acquire)) {
    wakeup_.wait(kRoundNs);
    const bool pausing = life_.load(std::memory_order_acquire) == Life::kPausing;
    urgent_ = urgent_ || pausing;  // after the pause no thread writes it within the second
    going = round(trace, false);
    late_.store(false);
    if (!going || !pausing) continue;
    if (trace.file) trace.file->rest();
    Life expected = Life::kPausing;
    if (life_.compare_exchange_strong(expected, Life::kPaused)) return true;
  }
  if (going && round(trace, true)) close(trace);
  return false;
}

bool WriterThread::round(OpenTrace& trace, bool last) {
  format::TraceWriter& writer = *trace.writer;
  bool good = drain_all(trace, last) && client_.write_values(writer, trace.max_bytes, last).ok() &&
              append_losses(writer) && append_cost(trace, last);
  if (const char* const reason = trigger_.exchange(nullptr, std::memory_order_acquire);
      good && reason != nullptr && trace.recorder) {
    // The thread that caused the trigger may be about to die.
    good = trace.recorder->write(writer, reason).ok() && writer.flush().ok();
    triggers_handled_.fetch_add(1);
  }
  if (good) {
    if (const std::optional<format::TraceMeta> meta = client_.changed_meta(trace))
      good = writer.append_meta(*meta).ok();
  }
  if (good && (urgent_ || writer.open_chunk_age_ns(now_ns()) > kFlushNs)) {
    good = writer.flush().ok();
    urgent_ = false;
  }
  if (!good) {
    stop_after_failure(trace);
    return false;
  }
  if (writer.bytes_written() >= trace.max_bytes) {
    stop_at_budget(trace);
    return false;
  }
  return true;
}

/// Drains in turns: events that wait elsewhere pass through this thread's own ring, which is
/// smaller.
bool WriterThread::drain_all(OpenTrace& trace, bool last) {
  bool good = true;
  bool more = true;
  for (int turn = 0; turn < kTurns && more && good; ++turn) {
    more = client_.before_drain() && trace.writer->bytes_written() < trace.max_bytes;
    good = drain(trace, last);
  }
  return good;
}

bool WriterThread::drain(OpenTrace& trace, bool last) {
  const uint64_t horizon_ns = last ? kEverything : now_ns();
  // Losses before later events: after a loss the judges must not draw conclusions across it.
  bool good = append_losses(*trace.writer);
  if (!good) return false;
  queue_.drain(horizon_ns, [&](const format::Event& event) {
    good = record(trace, event);
    return good && trace.writer->bytes_written() < trace.max_bytes;
  });
  return good;
}

/// Records the cost of tracing every few seconds, if there was something to trace.
bool WriterThread::append_cost(OpenTrace& trace, bool last) {
  const uint64_t now = now_ns();
  if (recorded_ == 0 || (!last && now - cost_t_ns_ < kCostNs)) return true;
  format::Cost cost;
  cost.header = {.seq = 0, .t_ns = now, .step = format::kNoStep, .thread = 0};
  cost.host_ns = client_.take_host_ns();
  cost.bytes = trace.writer->bytes_written() - cost_bytes_;
  cost_bytes_ += cost.bytes;
  cost_t_ns_ = now;
  const bool good = record(trace, cost);
  recorded_ = 0;
  return good;
}

bool WriterThread::record(OpenTrace& trace, const format::Event& event) {
  if (!put(trace, event)) return false;
  for (const format::Finding& finding : client_.judge(event)) {
    if (!put(trace, finding)) return false;
  }
  return true;
}

bool WriterThread::put(OpenTrace& trace, const format::Event& event) {
  count(trace, event);
  if (!trace.recorder) return trace.writer->append(event).ok();
  const char* const reason = trace.recorder->keep(event);
  return reason == nullptr || trace.recorder->write(*trace.writer, reason).ok();
}

void WriterThread::count(const OpenTrace& trace, const format::Event& event) {
  ++recorded_;
  if (const auto* tensor = std::get_if<format::TensorStats>(&event)) {
    if (tensor->capture == format::Capture::kSnapshot) value_bytes_ += tensor->bytes;
    // The same rule as in FlightRecorder::triggers_of.
    if (!nan_step_ && tensor->stats.nan + tensor->stats.pos_inf > 0)
      nan_step_ = tensor->header.step;
  } else if (const auto* finding = std::get_if<format::Finding>(&event)) {
    if (finding->suppressed) return;
    if (finding->level == format::Level::kWarning) ++warnings_;
    if (finding->level != format::Level::kError) return;
    ++findings_;
    urgent_ = true;
    say(trace, *finding);
  } else if (const auto* said = std::get_if<format::Diagnostic>(&event)) {
    cpu_unwatched_ = cpu_unwatched_ || said->site == format::kCpuMemorySite;
  } else if (std::holds_alternative<format::Step>(event)) {
    if (steps_++ != 0 && trace.all_values && value_bytes_ != 0 && !bytes_said_)
      say_expected_bytes(trace);
  }
}

void WriterThread::say(const OpenTrace& trace, const format::Finding& finding) const {
  if (findings_ > kSaid) return;
  log_line(messages::kFinding, "%s%s (convtrace findings %s): %.*s",
           findings_ == kSaid ? "more will not be said here; " : "", to_string(finding.kind).data(),
           trace.path.c_str(), first_sentence(finding.message), finding.message.data());
}

/// Called after the first step with values. Later steps store less, where values recur or change
/// little.
void WriterThread::say_expected_bytes(const OpenTrace& trace) {
  bytes_said_ = true;
  log_line(
      messages::kEveryValue,
      "every value is stored: %" PRIu64 " bytes in the first step before compression; the %" PRIu64
      " bytes of CONVTRACE_MAX_BYTES are enough for at least %s",
      value_bytes_, trace.max_bytes, count_noun(trace.max_bytes / value_bytes_, "step").c_str());
}

bool WriterThread::append_losses(format::TraceWriter& writer) {
  const EventQueue::Losses losses = queue_.take_losses();
  for (size_t i = 0; i < losses.size(); ++i) {
    if (losses[i] == 0) continue;
    lost_ += losses[i];
    // Tensors of unsupported kinds do not make a trace incomplete; the trace counts and names them.
    if (static_cast<format::LossReason>(i) != format::LossReason::kTensorKind)
      missing_ += losses[i];
    format::Loss loss;
    loss.header.t_ns = now_ns();
    loss.header.step = format::kNoStep;
    loss.reason = static_cast<format::LossReason>(i);
    loss.count = losses[i];
    if (!writer.append(loss).ok()) return false;
    (void)client_.judge(loss);  // makes no finding, but stops the judge from accusing
  }
  return true;
}

void WriterThread::close(OpenTrace& trace) {
  if (trace.recorder && !trace.recorder->finish(*trace.writer).ok())
    return stop_after_failure(trace);
  if (!trace.writer->close().ok()) return stop_after_failure(trace);
  say_end(trace);
}

void WriterThread::say_end(const OpenTrace& trace) const {
  const char* const path = trace.path.c_str();
  const uint64_t events = trace.writer->events_written();
  if (!trace.announced) {
    return log_line(missing_ != 0 ? messages::kEndedWithLosses : messages::kEnded,
                    "%s: %" PRIu64 " events, %" PRIu64 " not recorded%s", path, events, lost_,
                    lost_ != 0 ? " (reasons: convtrace info)" : "");
  }
  const char* const next = findings_ + warnings_ != 0 ? "convtrace findings"
                           : nan_step_                ? "convtrace show --nan"
                           : lost_ != 0               ? "convtrace info"
                                                      : "convtrace check";
  std::string found = count_noun(findings_, "error finding");
  if (warnings_ != 0) found += ", " + count_noun(warnings_, "warning");
  const std::string nan =
      nan_step_ ? ", first NaN or infinity in step " + std::to_string(*nan_step_) : "";
  std::string recorded;
  if (trace.recorder) {
    const std::string& trigger = trace.recorder->first_trigger();
    recorded = trigger.empty() ? ", no trigger of CONVTRACE_RING came, so no step was written"
                               : ", only what came with a trigger is in it, first " + trigger;
  }
  const uint64_t bytes = trace.writer->bytes_written();
  announce("%s: %s, %s, %" PRIu64 " bytes%s; %" PRIu64 " not recorded%s, %s%s%s%s; next: %s %s",
           path, count_noun(steps_, "step").c_str(), count_noun(events, "event").c_str(),
           steps_ == 0 ? bytes : bytes / steps_, steps_ == 0 ? "" : " a step", lost_,
           cut_off_ ? " and nothing behind them" : "", found.c_str(),
           cpu_unwatched_ ? " (memory of CPU tensors not watched)" : "", nan.c_str(),
           recorded.c_str(), next, path);
}

void WriterThread::stop_at_budget(OpenTrace& trace) {
  cut_off_ = true;
  client_.give_up_values(format::LossReason::kDiskBudget);
  state_.disable("disk budget reached");
  uint64_t dropped = 0;
  queue_.drain(kEverything, [&dropped](const format::Event&) {
    ++dropped;
    return true;
  });
  // At least one, since nothing that follows is in the trace either.
  queue_.lose(format::LossReason::kDiskBudget, dropped + 1);
  if (!append_losses(*trace.writer) || !trace.writer->close().ok())
    return stop_after_failure(trace);
  log_line(messages::kBudgetReached,
           "%s has reached its %" PRIu64 " bytes (CONVTRACE_MAX_BYTES) and is closed with %" PRIu64
           "; the program continues untraced",
           trace.path.c_str(), trace.max_bytes, trace.writer->bytes_written());
  if (trace.announced) say_end(trace);
}

void WriterThread::stop_after_failure(const OpenTrace& trace) {
  const Status status = trace.writer->status();
  client_.give_up_values(format::LossReason::kWriteFailed);
  state_.disable("the trace cannot be written");
  if (status.code == StatusCode::kNotFound) {
    return log_line(messages::kTraceLost,
                    "the program has closed the descriptor of the trace, and %s is not that file "
                    "any more (removed, replaced, or out of reach after chroot); tracing is over, "
                    "the program continues",
                    trace.path.c_str());
  }
  log_line(messages::kWriteFailed,
           "%s cannot be written any more: %s%s%s; tracing is over, the program continues",
           trace.path.c_str(), to_string(status.code),
           status.code == StatusCode::kIoError ? ": " : "",
           status.code == StatusCode::kIoError ? strerror(static_cast<int>(status.detail)) : "");
}

}  // namespace convtrace::engine

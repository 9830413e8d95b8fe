// Engine: begin of tracing, fork, and end of the process.

#include <time.h>

#include "format/base/clock.h"
#include "format/base/log.h"
#include "interposer/core/control/empty_trace_reasons.h"
#include "interposer/core/engine.h"
#include "interposer/core/lifecycle.h"
#include "interposer/core/runtime/guarded.h"
#include "interposer/core/runtime/process_threads.h"

namespace convtrace::engine {

void Engine::begin_trace() noexcept {
  if (begun_.load(std::memory_order_acquire) || begun_.exchange(true)) return;
  mark_explained();
  if (!contained("rank", true, [this] { return check_rank(); })) return;
  if (!writer_.start()) {
    process_state().disable("no thread");
    log_line(messages::kNoThread,
             "cannot start a thread; this process is not traced, the program continues");
  }
}

bool Engine::check_rank() {
  if (is_rank_wanted("CONVTRACE_RANKS", settings_.ranks, controls_.rank())) return true;
  process_state().disable(kUnwantedRank);
  return false;
}

void Engine::pause_threads(uint64_t deadline_ns) noexcept {
  constexpr timespec kNap{0, 50'000};
  if (!writer_.running()) return;
  const uint64_t begin = now_ns();
  const uint32_t threads = threads_of_process();
  const uint32_t ours = 1 + format::FileThread::alive() + helpers_.started();
  if (threads == 0 || threads > 1 + ours) return;
  writer_.pause(deadline_ns);
  helpers_.rest();
  // The kernel counts a thread for some microseconds after it was joined.
  while (threads_of_process() > 1 + format::FileThread::alive() && !writer_.running() &&
         now_ns() - begin < deadline_ns)
    nanosleep(&kNap, nullptr);
}

void Engine::finish(uint64_t deadline_ns, std::optional<int> exit_status) {
  const uint64_t begin = now_ns();
  // Another process sees the low eight bits.
  if (exit_status) facts_.set("exit.status", std::to_string(*exit_status & 0xff));
  if (cupti::Interceptor* cuda = interceptor_.load()) cuda->stop(deadline_ns / 2);
  if (!writer_.started()) return;
  controls_.tell_steps();
  report_matches();
  journal_.apply_reports();
  const uint64_t spent = now_ns() - begin;
  if (spent < deadline_ns && writer_.finish(deadline_ns - spent)) return;
  log_line(messages::kSlowDisk, "the disk was too slow at exit; the end of the trace is missing");
}

}  // namespace convtrace::engine

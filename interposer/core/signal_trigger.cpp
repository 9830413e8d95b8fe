#include "interposer/core/signal_trigger.h"

#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace convtrace::engine {
namespace {

constexpr int kStopping[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP};
constexpr int kCrashing[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr int kHighest = 32;
constexpr timespec kNap{0, 5'000'000};
constexpr int kNaps = 100;

std::atomic<WriterThread*> g_writer{nullptr};
std::atomic<pid_t> g_pid{0};
struct sigaction g_before[kHighest];

/// @return null in a forked child, which has the handlers but no writer thread.
WriterThread* writer_of_this_process() noexcept {
  return g_pid.load() == getpid() ? g_writer.load() : nullptr;
}

void wait_for(const WriterThread& writer, uint32_t handled) noexcept {
  for (int nap = 0; nap < kNaps && writer.triggers_handled() == handled; ++nap)
    nanosleep(&kNap, nullptr);
}

/// Does what would have happened without convtrace's handler.
void pass_on(int number, siginfo_t* info, void* context) noexcept {
  const struct sigaction& before = g_before[number];
  if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(number, info, context);
  if (before.sa_handler == SIG_IGN) return;
  if (before.sa_handler != SIG_DFL) return before.sa_handler(number);
  if (number == SIGUSR2) return;
  sigaction(number, &before, nullptr);
  // A fault happens again on return. A signal that was sent is raised again, and arrives when this
  // handler has returned.
  if (info->si_code <= 0) raise(number);
}

void on_signal(int number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  if (WriterThread* const writer = writer_of_this_process()) {
    const uint32_t handled = writer->triggers_handled();
    writer->trigger(number == SIGUSR2 ? "USR2" : "signal");
    // A thread that is paused for a fork cannot be started from here.
    if (number != SIGUSR2 && !writer->paused()) wait_for(*writer, handled);
  }
  errno = saved_errno;
  pass_on(number, info, context);
}

bool is_handled(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

void install(int number) noexcept {
  struct sigaction& before = g_before[number];
  if (sigaction(number, nullptr, &before) != 0) return;
  struct sigaction ours = {};
  ours.sa_sigaction = on_signal;
  ours.sa_mask = before.sa_mask;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (before.sa_flags & SA_NODEFER);
  // A program with a handler chooses whether interrupted calls restart (Python chooses not).
  ours.sa_flags |= is_handled(before) ? before.sa_flags & SA_RESTART : SA_RESTART;
  sigaction(number, &ours, nullptr);
}

}  // namespace

void install_signal_triggers(WriterThread& writer, const settings::Ring& ring) noexcept {
  g_writer.store(&writer);
  g_pid.store(getpid());
  if (ring.on(settings::Trigger::kUsr2)) install(SIGUSR2);
  if (!ring.on(settings::Trigger::kSignal)) return;
  for (const int number : kStopping) install(number);
  for (const int number : kCrashing) install(number);
}

}  // namespace convtrace::engine

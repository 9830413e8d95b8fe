#include "tools/common/live_wait.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <string>

namespace convtrace::tools {
namespace {

volatile sig_atomic_t g_interrupted = 0;

void interrupt(int /*signal*/) { g_interrupted = 1; }

std::string own_host() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

LiveWait::LiveWait() {
  struct sigaction action {};
  action.sa_handler = interrupt;  // without SA_RESTART: poll() must return
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

LiveWait::~LiveWait() {
  if (process_ >= 0) close(process_);
}

bool LiveWait::interrupted() { return g_interrupted != 0; }

/// Uses a pidfd instead of the number: numbers are reused, and poll() can wait for a pidfd.
void LiveWait::find(const format::TraceMeta& writer) {
  if (looked_for_ || writer.pid == 0) return;
  looked_for_ = true;
  if (writer.host != own_host()) return;
  // glibc 2.36 does not declare the functions of sys/pidfd.h for C++.
  process_ = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(writer.pid), 0));
  writer_gone_ = process_ < 0 && errno == ESRCH;
}

void LiveWait::wait(const format::TraceMeta& writer, int most_ms) {
  find(writer);
  if (writer_gone_ || interrupted()) return;
  pollfd process{process_, POLLIN, 0};  // poll ignores a negative descriptor
  writer_gone_ = poll(&process, 1, most_ms) > 0;
}

}  // namespace convtrace::tools

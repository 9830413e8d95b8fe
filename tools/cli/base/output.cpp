#include "tools/cli/base/output.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/complaints.h"

namespace convtrace::tools {
namespace {

constexpr size_t kBufferBytes = 64 * 1024;

}  // namespace

Output::Output(int fd) : fd_(fd) { signal(SIGPIPE, SIG_IGN); }

void Output::line(std::string_view text) {
  if (!usable()) return;
  buffer_.append(text).push_back('\n');
  if (buffer_.size() >= kBufferBytes) flush();
}

void Output::flush() {
  size_t done = 0;
  while (done < buffer_.size() && usable()) {
    const ssize_t written = write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (written >= 0) {
      done += static_cast<size_t>(written);
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  buffer_.clear();
}

ExitCode Output::finish(ExitCode code) {
  flush();
  if (usable() || error_ == EPIPE) return code;
  complain(MessageId::kNotWritten, "standard output", strerror(error_));
  return ExitCode::kFailure;
}

}  // namespace convtrace::tools

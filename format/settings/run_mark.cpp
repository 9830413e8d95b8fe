#include "format/settings/run_mark.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "format/settings/run_mark_name.h"

namespace convtrace::settings {
namespace {

/// Above the numbers that scripts redirect.
constexpr int kLowestDescriptor = 64;

/// The link of a descriptor in /proc.
struct Link {
  Link(int process, int descriptor) {
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", process, descriptor);
  }
  explicit Link(int descriptor) {
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
  }
  /// The process with that number may be a later one, with another file under that descriptor.
  [[nodiscard]] bool is_mark() const {
    char target[PATH_MAX];
    const ssize_t length = readlink(path, target, sizeof target);
    return length > 0 &&
           std::string_view(target, static_cast<size_t>(length)) == CONVTRACE_RUN_MARK_LINK;
  }
  char path[64];
};

void write_to_mark(int process, int descriptor) {
  const Link link(process, descriptor);
  if (!link.is_mark()) return;
  const int mark = open(link.path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK);
  if (mark < 0) return;
  // The number may have become that of another file before it was opened.
  if (Link(mark).is_mark()) {
    const ssize_t written = write(mark, "", 1);
    (void)written;
  }
  close(mark);
}

}  // namespace

std::string open_run_mark() {
  const int low = memfd_create(CONVTRACE_RUN_MARK_NAME, MFD_CLOEXEC);
  const int mark = low < 0 ? -1 : fcntl(low, F_DUPFD, kLowestDescriptor);
  if (low >= 0) close(low);
  if (mark < 0) return "1";
  return std::to_string(getpid()) + ':' + std::to_string(mark);
}

void leave_run_mark(const char* announced) noexcept {
  int process = 0, descriptor = 0;
  if (announced == nullptr || std::sscanf(announced, "%d:%d", &process, &descriptor) != 2) return;
  write_to_mark(process, descriptor);
  // The command, and children that it forked, hold the mark and have no use for it any more.
  if (Link(descriptor).is_mark()) close(descriptor);
}

}  // namespace convtrace::settings

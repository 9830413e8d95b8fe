#include "format/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>

namespace convtrace {
namespace {

std::atomic<int> g_level{static_cast<int>(format::Level::kWarning)};
std::atomic<uint32_t> g_rank{0};
std::atomic<int> g_fd{2};

constexpr char letter(format::Level level) {
  switch (level) {
    case format::Level::kError:
      return 'E';
    case format::Level::kWarning:
      return 'W';
    case format::Level::kInfo:
      return 'I';
    case format::Level::kDebug:
      return 'D';
  }
  return '?';
}

}  // namespace

void configure_log(format::Level level, uint32_t rank, int fd) noexcept {
  g_level.store(static_cast<int>(level), std::memory_order_relaxed);
  g_rank.store(rank, std::memory_order_relaxed);
  g_fd.store(fd, std::memory_order_relaxed);
}

bool log_enabled(format::Level level) noexcept {
  const int limit = g_level.load(std::memory_order_relaxed);
  if (static_cast<int>(level) > limit) return false;
  return level == format::Level::kError || g_rank.load(std::memory_order_relaxed) == 0 ||
         limit == static_cast<int>(format::Level::kDebug);
}

void log_line(format::Level level, const char* site, const char* format, ...) noexcept {
  if (!log_enabled(level)) return;
  const int saved_errno = errno;  // called between a host's call and its look at errno
  char line[512];
  const int head = snprintf(line, sizeof line, "convtrace[%d] %c %s: ", static_cast<int>(getpid()),
                            letter(level), site);
  size_t used = head > 0 ? static_cast<size_t>(head) : 0;
  if (used > sizeof line - 2) used = sizeof line - 2;
  va_list arguments;
  va_start(arguments, format);
  const int body = vsnprintf(line + used, sizeof line - used - 1, format, arguments);
  va_end(arguments);
  if (body > 0) used += static_cast<size_t>(body);
  if (used > sizeof line - 2) used = sizeof line - 2;
  line[used++] = '\n';
  [[maybe_unused]] const ssize_t written = write(g_fd.load(std::memory_order_relaxed), line, used);
  errno = saved_errno;
}

}  // namespace convtrace

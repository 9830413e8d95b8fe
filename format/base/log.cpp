#include "format/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace convtrace {
namespace {

std::atomic<int> g_level{static_cast<int>(format::Level::kWarning)};
std::atomic<uint32_t> g_rank{0};
std::atomic<GuardedFile*> g_file{nullptr};  ///< null: stderr

constexpr char letter(format::Level level) {
  switch (level) {
    case format::Level::kError: return 'E';
    case format::Level::kWarning: return 'W';
    case format::Level::kInfo: return 'I';
    case format::Level::kDebug: return 'D';
  }
  return '?';
}

/// The limit for lines that are no errors: a message about every launch must not fill a disk.
constexpr uint32_t kMostInWindow = 100;
constexpr int64_t kWindowS = 10;
std::atomic<int64_t> g_window{-1};
std::atomic<uint32_t> g_in_window{0};
std::atomic<uint32_t> g_left_out{0};

/// @return whether one more line may be written now.
bool within_rate() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t window = now.tv_sec / kWindowS;
  if (g_window.exchange(window, std::memory_order_relaxed) != window)
    g_in_window.store(0, std::memory_order_relaxed);
  if (g_in_window.fetch_add(1, std::memory_order_relaxed) < kMostInWindow) return true;
  g_left_out.fetch_add(1, std::memory_order_relaxed);
  return false;
}

/// Truncates long lines.
void write_line(const char* head, const char* format, va_list arguments) noexcept {
  const int saved_errno = errno;  // the host may read errno after its own call
  char line[512];
  constexpr size_t kMost = sizeof line - 2;
  const int begun = snprintf(line, sizeof line, "%s", head);
  size_t used = begun > 0 ? std::min(static_cast<size_t>(begun), kMost) : 0;
  const int body = vsnprintf(line + used, sizeof line - used - 1, format, arguments);
  if (body > 0) used = std::min(used + static_cast<size_t>(body), kMost);
  line[used++] = '\n';
  const QuietWrites quiet;
  GuardedFile* const file = g_file.load(std::memory_order_acquire);
  if ((file == nullptr || !file->append(line, used)) && fcntl(STDERR_FILENO, F_GETFD) == 0) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, used);
  }
  errno = saved_errno;
}

}  // namespace

void configure_log(format::Level level, uint32_t rank, GuardedFile* file) noexcept {
  g_level.store(static_cast<int>(level), std::memory_order_relaxed);
  g_rank.store(rank, std::memory_order_relaxed);
  g_file.store(file, std::memory_order_release);
}

void set_log_rank(uint32_t rank) noexcept { g_rank.store(rank, std::memory_order_relaxed); }

bool log_enabled(format::Level level) noexcept {
  const int limit = g_level.load(std::memory_order_relaxed);
  if (static_cast<int>(level) > limit) return false;
  return level == format::Level::kError || g_rank.load(std::memory_order_relaxed) == 0 ||
         limit == static_cast<int>(format::Level::kDebug);
}

void log_line(const Message& message, const char* format, ...) noexcept {
  const format::Level level = message.level;
  if (!log_enabled(level) || (level != format::Level::kError && !within_rate())) return;
  char left_out[32] = "", number[16] = "", head[96];
  if (const uint32_t lines = g_left_out.exchange(0, std::memory_order_relaxed))
    snprintf(left_out, sizeof left_out, "(%u lines left out) ", lines);
  if (message.number != 0) snprintf(number, sizeof number, "CT-%u ", unsigned{message.number});
  snprintf(head, sizeof head, "convtrace[%d] %c %s: %s%s", static_cast<int>(getpid()),
           letter(level), message.site, left_out, number);
  va_list arguments;
  va_start(arguments, format);
  write_line(head, format, arguments);
  va_end(arguments);
}

void announce(const char* format, ...) noexcept {
  if (g_rank.load(std::memory_order_relaxed) != 0) return;
  va_list arguments;
  va_start(arguments, format);
  write_line("convtrace: ", format, arguments);
  va_end(arguments);
}

}  // namespace convtrace

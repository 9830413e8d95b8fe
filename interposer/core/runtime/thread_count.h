#pragma once
/// @file thread_count.h
/// How many threads the process has, as Python counts them after a fork.
///
/// Errors:   0: without /proc, or without a free descriptor.
/// Source:   proc(5) on /proc/pid/stat; CPython 3.12 Modules/posixmodule.c
///           (warn_about_fork_with_threads).

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace convtrace::engine {

inline uint32_t threads_of_process() noexcept {
  char text[1024];
  const int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t bytes = read(file, text, sizeof text - 1);
  close(file);
  text[bytes > 0 ? bytes : 0] = '\0';
  const char* field = strrchr(text, ')');  // the name before it may contain anything
  constexpr int kThreads = 20, kName = 2;
  for (int number = kName; field != nullptr && number < kThreads; ++number)
    field = strchr(field + 1, ' ');
  return field != nullptr ? static_cast<uint32_t>(strtoul(field, nullptr, 10)) : 0;
}

}  // namespace convtrace::engine

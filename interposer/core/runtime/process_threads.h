#pragma once
/// @file process_threads.h
/// Numbers of threads of the process: those that convtrace may use, and those that exist.
///
/// Threads:  any.
/// Source:   proc(5) on /proc/pid/stat; CPython 3.12 Modules/posixmodule.c
///           (warn_about_fork_with_threads).

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace convtrace::engine {

/// @return the number of threads that convtrace may use beside the calling one: as many as the process
/// has processors, or fewer if the program asks for fewer. A rank that torchrun starts beside seven
/// others has OMP_NUM_THREADS=1.
inline uint32_t spare_threads() noexcept {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
  int threads = CPU_COUNT(&allowed);
  if (const char* const text = std::getenv("OMP_NUM_THREADS")) {
    const int wanted = std::atoi(text);
    if (wanted > 0) threads = std::min(threads, wanted);
  }
  return static_cast<uint32_t>(std::max(threads, 1)) - 1;
}

/// @return the number of threads of the process, as Python counts them after a fork; 0 without /proc, or
/// without a free descriptor.
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

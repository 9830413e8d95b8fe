#pragma once
/// @file spare_threads.h
/// The number of threads that convtrace may use beside the calling one.

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace convtrace::engine {

/// The number of processors that the process may use, or fewer if the program asks for fewer: a
/// rank that torchrun starts beside seven others has OMP_NUM_THREADS=1.
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

}  // namespace convtrace::engine

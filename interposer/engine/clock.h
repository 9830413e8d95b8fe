#pragma once
/// @file clock.h
/// The one clock of a trace: CLOCK_MONOTONIC in ns.

#include <time.h>

#include <cstdint>

namespace convtrace::engine {

inline uint64_t now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace convtrace::engine

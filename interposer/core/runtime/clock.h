#pragma once
/// @file clock.h
/// The one clock of a trace: CLOCK_MONOTONIC in ns.
///
/// Why:      not the TSC itself. Event order needs a read that nothing overtakes; that is 16 to 19
///           ns of the 23 that the whole call takes (Zen 5 guest), and the rest would have to
///           follow NTP's slewing and a virtual machine's moves as the kernel does.

#include <time.h>

#include <cstdint>

namespace convtrace::engine {

inline uint64_t now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace convtrace::engine

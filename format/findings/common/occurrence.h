#pragma once
/// @file occurrence.h
/// How often the same finding is said.

#include <bit>
#include <cstdint>

namespace convtrace::judge {

/// A bug in a loop is said four times, then at each doubling: enough to see it, never a flood.
[[nodiscard]] constexpr bool worth_saying(uint64_t occurrence) {
  return occurrence <= 4 || std::has_single_bit(occurrence);
}

}  // namespace convtrace::judge

#pragma once
/// @file occurrence.h
/// Limits how often the same finding is reported.

#include <bit>
#include <cstdint>

namespace convtrace::judge {

/// A repeated finding is reported four times, then at each doubling: enough to see it, without a
/// flood.
[[nodiscard]] constexpr bool worth_saying(uint64_t occurrence) {
  return occurrence <= 4 || std::has_single_bit(occurrence);
}

}  // namespace convtrace::judge

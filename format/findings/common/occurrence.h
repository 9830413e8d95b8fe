#pragma once
/// @file occurrence.h
/// Limits how often the same finding is reported.

#include <bit>
#include <cstdint>
#include <string>

namespace convtrace::judge {

/// A repeated finding is reported four times, then at each doubling: enough to see it, without a
/// flood.
[[nodiscard]] constexpr bool worth_saying(uint64_t occurrence) {
  return occurrence <= 4 || std::has_single_bit(occurrence);
}

/// Behind the text of a finding that is told again.
[[nodiscard]] inline std::string repeated_text(uint64_t occurrence) {
  if (occurrence == 1) return "";
  return " It is occurrence " + std::to_string(occurrence) + " of the same.";
}

}  // namespace convtrace::judge

#pragma once
/// @file count_noun.h
/// A count with its noun.

#include <cstdint>
#include <string>
#include <string_view>

namespace convtrace {

/// @return "1 step", "2 steps".
[[nodiscard]] inline std::string count_noun(uint64_t count, std::string_view noun) {
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : "s");
}

}  // namespace convtrace

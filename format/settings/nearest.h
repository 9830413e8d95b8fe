#pragma once
/// @file nearest.h
/// Finds the valid name that the user probably meant.
///
/// Threads:  pure functions.
/// Errors:   none.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace convtrace::settings {

/// @return the number of insertions, deletions, substitutions and swaps of neighbours that turn `a`
/// into `b`, ignoring case.
[[nodiscard]] size_t edit_distance(std::string_view a, std::string_view b);

/// @return the candidate with the smallest edit distance to `word`, the first of equals; empty if
/// there is none, or if half of the word would have to change.
[[nodiscard]] std::string_view nearest(std::string_view word,
                                       std::span<const std::string_view> candidates);

/// @return "the nearest is X", or `otherwise` if none is near.
[[nodiscard]] std::string suggestion(std::string_view word,
                                     std::span<const std::string_view> candidates,
                                     std::string_view otherwise);

/// Makes untrusted text fit in one line of a message: control bytes become `?`.
[[nodiscard]] std::string one_line(std::string_view text);

/// The same in quotes; long texts end in `...`.
[[nodiscard]] std::string quoted(std::string_view text);

}  // namespace convtrace::settings

#pragma once
/// @file child.h
/// A child process whose answer is wanted, for a limited time.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace convtrace::tools {

/// Runs `words` with an empty stdin, and with no preload library. @return its standard output; none
/// if it could not be started, failed, or took longer than `limit` (it is killed then).
[[nodiscard]] std::optional<std::string> answer_of(const std::vector<std::string>& words,
                                                   std::chrono::milliseconds limit);

}  // namespace convtrace::tools

#pragma once
/// @file child.h
/// A child process whose answer is wanted, for a limited time, and where its program lies.

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace convtrace::tools {

/// As a shell finds it in PATH; empty if there is no such program.
[[nodiscard]] std::filesystem::path find_program(const std::string& word);

/// Runs `words` with an empty stdin, and with no preload library. @return its standard output; none
/// if it could not be started, failed, or took longer than `limit` (it is killed then).
[[nodiscard]] std::optional<std::string> answer_of(const std::vector<std::string>& words,
                                                   std::chrono::milliseconds limit);

}  // namespace convtrace::tools

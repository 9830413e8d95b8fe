#pragma once
/// @file child.h
/// Runs a program for its output, for a limited time; finds a program in PATH.

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace convtrace::tools {

/// @return the program's path, found as a shell finds it; empty if there is none.
[[nodiscard]] std::filesystem::path find_program(const std::string& word);

/// Runs `words` with an empty stdin and without a preload library. @return its standard output;
/// nothing if it could not be started, failed, or took longer than `limit`, after which it is
/// killed.
[[nodiscard]] std::optional<std::string> answer_of(const std::vector<std::string>& words,
                                                   std::chrono::milliseconds limit);

}  // namespace convtrace::tools

#pragma once
/// @file child.h
/// Finds a program in PATH, runs one for its output, for a limited time, or becomes it.

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

/// Replaces this process by the program words[0], found as a shell finds it.
/// @pre words is not empty. @return errno, if the program could not be started; else it does not
/// return.
[[nodiscard]] int execute(const std::vector<std::string>& words);

}  // namespace convtrace::tools

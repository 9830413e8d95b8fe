#pragma once
/// @file program.h
/// Examines the program that a command names: its path, whether the preload library can be loaded
/// into it, and which Python runs it.
///
/// Place:    `convtrace doctor`, and `convtrace run` before it starts the program.
/// Errors:   a file that cannot be read counts as having no obstacle.

#include <filesystem>
#include <string>
#include <vector>

namespace convtrace::tools {

/// @return why the loader would not load the preload library: "is linked statically: ..."; "" if it
/// would.
[[nodiscard]] std::string preload_obstacle(const std::filesystem::path& program);

/// @return the option of a leading `env` that removes LD_PRELOAD; "" if there is none.
[[nodiscard]] std::string clearing_option(const std::vector<std::string>& command);

/// @return the words of a command from its first Python on: `python train.py` of `bash -c "cd job
/// && python train.py"`, or the interpreter of a script such as torchrun. Empty if there is none.
[[nodiscard]] std::vector<std::string> python_part(const std::vector<std::string>& command);

}  // namespace convtrace::tools

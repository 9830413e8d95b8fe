#pragma once
/// @file program.h
/// The program that a command names: where it is, whether the preload library gets into it, and
/// which Python runs it.
///
/// Place:    `convtrace doctor`, and `convtrace run` before it becomes the program.
/// Errors:   what cannot be read is not judged.

#include <filesystem>
#include <string>
#include <vector>

namespace convtrace::tools {

/// @return why the loader does not take the preload library into it: "is linked statically: ...";
/// empty if it does.
[[nodiscard]] std::string preload_obstacle(const std::filesystem::path& program);

/// @return the option of an `env` in front that keeps LD_PRELOAD from what it starts; empty if
/// there is none.
[[nodiscard]] std::string clearing_option(const std::vector<std::string>& command);

/// @return the first Python of a command and all behind it: `python train.py` of `bash -c "cd job
/// && python train.py"`, the interpreter of torchrun, which is a script. Empty if none is named.
[[nodiscard]] std::vector<std::string> python_part(const std::vector<std::string>& command);

}  // namespace convtrace::tools

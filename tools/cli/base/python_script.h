#pragma once
/// @file python_script.h
/// Commands that are written in Python.

#include <string>
#include <vector>

#include "tools/common/exit_code.h"

namespace convtrace::tools {

/// Replaces this process by `python3 SCRIPT ARGUMENTS...`. @return only if that fails: kFailure,
/// after a message.
/// @param script  relative to share/convtrace of the tree.
[[nodiscard]] ExitCode become_script(const std::string& script,
                                     const std::vector<std::string>& arguments);

}  // namespace convtrace::tools

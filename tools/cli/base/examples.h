#pragma once
/// @file examples.h
/// The help of the commands of `convtrace`: its layout, and examples that can be typed.

#include <CLI/App.hpp>

namespace convtrace::tools {

/// @param app  with all commands.
void lay_out_commands(CLI::App& app);

}  // namespace convtrace::tools

#pragma once
/// @file command.h
/// The program convtrace-diff without its process: options, reports, exit codes.

#include <ostream>

namespace convtrace::diff {

/// @param out     data; the report for people too, unless another report is written there (`-`).
/// @param err     complaints; the report for people when `out` is taken.
/// @param color   whether the report for people may use ANSI colours.
/// @return a tools::DiffExitCode.
int diff_command(int argc, const char* const* argv, std::ostream& out, std::ostream& err,
                 bool color);

}  // namespace convtrace::diff

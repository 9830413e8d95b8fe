#pragma once
/// @file command.h
/// The program convtrace-diff without its process: options, reports, exit codes.

#include <ostream>

#include "tools/diff/report/text_layout.h"

namespace convtrace::diff {

/// @param out     data; the report for people too, unless another report is written there (`-`).
/// @param err     complaints; the report for people when `out` is taken.
/// @param terminal  what `out` and `err` are.
/// @return a tools::DiffExitCode.
int diff_command(int argc, const char* const* argv, std::ostream& out, std::ostream& err,
                 Terminal terminal);

}  // namespace convtrace::diff

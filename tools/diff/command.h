#pragma once
/// @file command.h
/// The program convtrace-diff without main(): options, reports, exit codes.

#include <ostream>

#include "tools/report/text_layout.h"

namespace convtrace::diff {

/// @param out     data; also the report for people, unless another report is written there (`-`).
/// @param err     error messages; the report for people if `out` is taken.
/// @param terminal  properties of `out` and `err`.
/// @return a tools::DiffExitCode.
int diff_command(int argc, const char* const* argv, std::ostream& out, std::ostream& err,
                 Terminal terminal);

}  // namespace convtrace::diff

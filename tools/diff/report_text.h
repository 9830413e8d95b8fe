#pragma once
/// @file report_text.h
/// The report for a terminal: its first screen answers the question.

#include <ostream>

#include "tools/diff/result.h"

namespace convtrace::diff {

/// @param color ANSI colours; only for a terminal.
void write_text_report(const DiffResult& result, bool color, std::ostream& out);

}  // namespace convtrace::diff

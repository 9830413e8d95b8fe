#pragma once
/// @file report_text.h
/// The report for a terminal; its first screen contains the answer.

#include <ostream>

#include "tools/diff/verdict/result.h"
#include "tools/report/text_layout.h"

namespace convtrace::diff {

void write_text_report(const DiffResult& result, Terminal terminal, std::ostream& out);

}  // namespace convtrace::diff

#pragma once
/// @file report_html.h
/// The report as one page that needs nothing else: no script, no network.

#include <ostream>

#include "tools/diff/result.h"

namespace convtrace::diff {

void write_html_report(const DiffResult& result, std::ostream& out);

}  // namespace convtrace::diff

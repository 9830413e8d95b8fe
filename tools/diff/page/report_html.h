#pragma once
/// @file report_html.h
/// The report as one self-contained HTML page: no other file, no network. Without scripts it lacks
/// only plots, heat map and listing.

#include <ostream>

#include "tools/diff/page/page_rows.h"
#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

void write_html_report(const DiffResult& result, const PageRows& rows, std::ostream& out);

}  // namespace convtrace::diff

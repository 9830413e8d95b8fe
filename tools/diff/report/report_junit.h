#pragma once
/// @file report_junit.h
/// The report for continuous integration: JUnit XML, one case per rank and one for the findings.

#include <ostream>

#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

void write_junit_report(const DiffResult& result, std::ostream& out);

}  // namespace convtrace::diff

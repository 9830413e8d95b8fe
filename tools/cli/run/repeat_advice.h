#pragma once
/// @file repeat_advice.h
/// What would make a program repeat, from where two of its runs part and from the switches that
/// they had.
///
/// Errors:   none: of a report without the key nothing is said.

#include <string>
#include <vector>

#include "format/model/meta.h"
#include "tools/common/json.h"

namespace convtrace::tools {

/// @param report  of `convtrace-diff --json` of two runs of one command that are not equal.
/// @param meta    of one of their traces.
/// @return sentences, the surest first; one at least. Escaped for a terminal.
[[nodiscard]] std::vector<std::string> repeat_advice(const Json& report,
                                                     const format::TraceMeta& meta);

}  // namespace convtrace::tools

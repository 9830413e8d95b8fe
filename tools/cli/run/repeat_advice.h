#pragma once
/// @file repeat_advice.h
/// Proposes changes that would make a program repeat its bits, from the place where two of its runs
/// diverge and from their switches.
///
/// Errors:   none: a key that the report lacks gives no advice.

#include <string>
#include <vector>

#include "format/model/meta.h"
#include "tools/common/json.h"

namespace convtrace::tools {

/// @param report  of `convtrace-diff --json` of two runs of one command that are not equal.
/// @param meta    of one of their traces.
/// @return at least one sentence, the most certain first, escaped for a terminal.
[[nodiscard]] std::vector<std::string> repeat_advice(const Json& report,
                                                     const format::TraceMeta& meta);

}  // namespace convtrace::tools

#pragma once
/// @file report.h
/// The forms in which `convtrace weights` tells its result.
///
/// Threads:  pure functions.

#include <ostream>

#include "tools/common/json.h"
#include "tools/report/text_layout.h"
#include "tools/weights/compare.h"

namespace convtrace::weights {

/// docs/weights.md describes the keys.
[[nodiscard]] tools::Json json_of(const Comparison& result);
/// Everything out of a trace is escaped.
void write_text(const Comparison& result, diff::Terminal terminal, std::ostream& out);

}  // namespace convtrace::weights

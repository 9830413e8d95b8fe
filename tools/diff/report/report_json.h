#pragma once
/// @file report_json.h
/// The report for programs. Keys are part of convtrace's interface: keys may be added, none
/// removed.
///
/// Source: docs/reference.md "JSON".

#include "tools/common/json.h"
#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// Loss and gradient norm of every step, a part of json_report.
[[nodiscard]] tools::Json per_step_json(const DiffResult& result);
[[nodiscard]] tools::Json json_report(const DiffResult& result);

}  // namespace convtrace::diff

#pragma once
/// @file reports.h
/// The forms of a result of `convtrace check`. All texts out of a trace are escaped.

#include <ostream>

#include "tools/check/model/result.h"
#include "tools/common/json.h"
#include "tools/report/brief.h"
#include "tools/report/text_layout.h"

namespace convtrace::check {

void write_text(const CheckResult& result, diff::Terminal terminal, std::ostream& out);
/// Keys: docs/reference.md "JSON".
[[nodiscard]] tools::Json json_of(const CheckResult& result);
[[nodiscard]] report::Brief brief_of(const CheckResult& result);
/// A self-contained page without scripts.
void write_html(const CheckResult& result, std::ostream& out);
/// A test case for each check: failed where it found an error or a warning, skipped where it had
/// nothing to judge.
void write_junit(const CheckResult& result, std::ostream& out);

/// @return "2 errors and 1 warning in 40 steps of 1 rank".
[[nodiscard]] std::string headline(const CheckResult& result);
/// @return "step 7, backward, h.0.mlp, grad:weight", escaped; "" if the place is unknown.
[[nodiscard]] std::string place_of(const Finding& finding);

}  // namespace convtrace::check

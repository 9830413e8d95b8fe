#pragma once
/// @file reports.h
/// The forms of a result of `convtrace origin`. All texts out of a trace are escaped.

#include <ostream>
#include <string>

#include "tools/common/json.h"
#include "tools/origin/model/result.h"
#include "tools/report/brief.h"
#include "tools/report/text_layout.h"

namespace convtrace::origin {

void write_text(const OriginResult& result, diff::Terminal terminal, std::ostream& out);
/// Keys: docs/reference.md "JSON", docs/origin-report.schema.json.
[[nodiscard]] tools::Json json_of(const OriginResult& result);
[[nodiscard]] report::Brief brief_of(const OriginResult& result);
/// A self-contained page without scripts.
void write_html(const OriginResult& result, std::ostream& out);

/// @return "2 origins, the first on rank 3 in step 7; 8 ranks, 20 steps".
[[nodiscard]] std::string headline(const OriginResult& result);
/// @return "rank 3, step 7, backward, module h.0, output:0", escaped.
[[nodiscard]] std::string place_of(const Origin& origin);
/// @return "received by ranks 0-2 through ...", escaped; "" if no rank received it.
[[nodiscard]] std::string received_text(const Origin& origin);

}  // namespace convtrace::origin

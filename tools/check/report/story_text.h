#pragma once
/// @file story_text.h
/// The story of a run for people and for programs.

#include <string>
#include <utility>
#include <vector>

#include "tools/check/model/result.h"
#include "tools/common/json.h"
#include "tools/report/markup.h"

namespace convtrace::check {

/// @return that of the rank in which something happened first, else of the first rank; null: none.
[[nodiscard]] const Story* story_to_tell(const CheckResult& result);
/// @return labels, padded, and texts, escaped: one line where nothing happened.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> story_lines(
    const CheckResult& result);
[[nodiscard]] tools::Json story_json(const Story& story);
/// Writes curves without scripts, and the lines.
void write_story(const CheckResult& result, diff::Markup& out);

}  // namespace convtrace::check

#pragma once
/// @file finding_stories.h
/// The findings of one run as stories: one for each bug (tools/common/stories.h).

#include <string>
#include <vector>

#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// Sets FindingReport::story: from 0, by the earliest finding of each.
void number_stories(Findings& findings);

struct ToldStory {
  const FindingReport* first;       ///< that explains the others; borrowed
  std::vector<std::string> others;  ///< lines, escaped for a terminal
};

/// By the earliest finding of each.
[[nodiscard]] std::vector<ToldStory> told_stories(const Findings& findings);

/// @param index  of a numbered finding. @return what else belongs to its story, lines as above.
[[nodiscard]] std::vector<std::string> rest_of_story(const Findings& findings, size_t index);

}  // namespace convtrace::diff

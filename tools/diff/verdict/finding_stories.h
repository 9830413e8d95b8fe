#pragma once
/// @file finding_stories.h
/// The findings of one run as stories: one for each bug (tools/common/stories.h).

#include <functional>
#include <string>
#include <vector>

#include "format/model/meta.h"
#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// Sets FindingReport::story: from 0, by the earliest finding of each.
void number_stories(Findings& findings);

struct ToldStory {
  const FindingReport* first;       ///< that explains the others; borrowed
  std::vector<std::string> others;  ///< lines, escaped for a terminal
};

/// How many a report shows whole.
inline constexpr size_t kStoriesShown = 5;

/// @return the metadata of a rank's trace.
using MetaOf = std::function<const format::TraceMeta&(uint32_t rank)>;

/// Gives the frames of a finding names (tools/common/symbols.h).
void name_frames(FindingReport& finding, const MetaOf& meta_of);
/// The same for the first kStoriesShown stories that are errors.
void name_frames(Findings& findings, const MetaOf& meta_of);

/// By the earliest finding of each.
[[nodiscard]] std::vector<ToldStory> told_stories(const Findings& findings);

/// @param index  of a numbered finding. @return what else belongs to its story, lines as above.
[[nodiscard]] std::vector<std::string> rest_of_story(const Findings& findings, size_t index);

}  // namespace convtrace::diff

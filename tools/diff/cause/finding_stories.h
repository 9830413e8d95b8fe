#pragma once
/// @file finding_stories.h
/// Groups the findings of one run into stories, one for each bug (tools/common/stories.h).

#include <functional>
#include <string>
#include <vector>

#include "format/model/meta.h"
#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// Sets FindingReport::story: numbers from 0, ordered by the first finding of each story.
void number_stories(Findings& findings);

struct ToldStory {
  const FindingReport* first;       ///< the finding that explains the others; borrowed
  std::vector<std::string> others;  ///< lines, escaped for a terminal
};

/// The number of stories that a report shows in full.
inline constexpr size_t kStoriesShown = 5;

/// @return the metadata of a rank's trace.
using MetaOf = std::function<const format::TraceMeta&(uint32_t rank)>;

/// Replaces the frames of a finding by frames with names (tools/common/symbols.h).
void name_frames(FindingReport& finding, const MetaOf& meta_of);
/// The same for the first kStoriesShown stories whose findings are errors.
void name_frames(Findings& findings, const MetaOf& meta_of);

/// @return the stories, ordered by the first finding of each.
[[nodiscard]] std::vector<ToldStory> told_stories(const Findings& findings);

/// @param index  of a numbered finding. @return lines about the other findings of its story, as
/// above.
[[nodiscard]] std::vector<std::string> rest_of_story(const Findings& findings, size_t index);

}  // namespace convtrace::diff

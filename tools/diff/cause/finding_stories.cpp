#include "tools/diff/cause/finding_stories.h"

#include "tools/common/escape.h"
#include "tools/common/stories.h"
#include "tools/common/symbols.h"
#include "tools/common/text.h"

namespace convtrace::diff {
namespace {

using tools::escape_text;

std::vector<tools::StoryPart> parts_of(const Findings& findings) {
  std::vector<tools::StoryPart> parts;
  for (const FindingReport& f : findings.list) {
    const std::string scope = f.scope.empty() ? "root module" : escape_text(f.scope);
    const size_t stacks = static_cast<size_t>(!f.alloc_stack.empty()) +
                          static_cast<size_t>(!f.launch_stack.empty()) +
                          static_cast<size_t>(!f.free_stack.empty());
    parts.push_back({.kind = f.kind,
                     .level = f.level,
                     .suppressed = f.suppressed,
                     .rank = f.rank,
                     .step = f.step,
                     .place = std::string(to_string(f.phase)) + ", " + scope,
                     .op = f.op,
                     .kernel = f.kernel,
                     .slot = f.slot,
                     .other = f.other,
                     .storage = f.storage,
                     .generation = f.generation,
                     .address = f.address,
                     .bytes = f.bytes,
                     .stacks = stacks});
  }
  return parts;
}

}  // namespace

void number_stories(Findings& findings) {
  const std::vector<tools::Story> stories = tools::tell_stories(parts_of(findings));
  for (size_t number = 0; number < stories.size(); ++number)
    for (const size_t i : stories[number]) findings.list[i].story = number;
}

std::vector<ToldStory> told_stories(const Findings& findings) {
  const std::vector<tools::StoryPart> parts = parts_of(findings);
  std::vector<ToldStory> told;
  for (const tools::Story& story : tools::tell_stories(parts))
    told.push_back({&findings.list[story.front()], tools::story_lines(parts, story)});
  return told;
}

void name_frames(FindingReport& finding, const MetaOf& meta_of) {
  tools::Symbols symbols(meta_of(finding.rank));
  for (auto* stack : {&finding.alloc_stack, &finding.launch_stack, &finding.free_stack})
    *stack = symbols.frames(*stack);
}

void name_frames(Findings& findings, const MetaOf& meta_of) {
  size_t shown = 0;
  for (const tools::Story& story : tools::tell_stories(parts_of(findings))) {
    FindingReport& first = findings.list[story.front()];
    if (first.level != format::Level::kError || first.suppressed) continue;
    if (shown++ == kStoriesShown) return;
    name_frames(first, meta_of);
  }
}

std::vector<std::string> rest_of_story(const Findings& findings, size_t index) {
  tools::Story story{index};
  for (size_t i = 0; i < findings.list.size(); ++i)
    if (i != index && findings.list[i].story == findings.list[index].story) story.push_back(i);
  return tools::story_lines(parts_of(findings), story);
}

}  // namespace convtrace::diff

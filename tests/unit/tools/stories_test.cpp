#include "tools/common/stories.h"

#include "tests/support/catch.h"

using namespace convtrace;
using namespace convtrace::tools;
using format::FindingKind;
using format::Level;

namespace {

StoryPart freed(uint32_t step, uint64_t address, uint64_t storage, const char* op = "f") {
  return {.kind = FindingKind::kFreedUnderOutput,
          .level = Level::kError,
          .step = step,
          .place = "forward, h.0",
          .op = op,
          .slot = "output:0",
          .other = "input:0",
          .storage = storage,
          .address = address,
          .bytes = 256,
          .stacks = 3};
}

StoryPart stale(uint32_t step, uint64_t address, uint64_t storage) {
  return {.kind = FindingKind::kStaleRead,
          .level = Level::kError,
          .step = step,
          .place = "forward, h.0.norm",
          .storage = storage,
          .address = address,
          .bytes = 256,
          .stacks = 3};
}

}  // namespace

TEST_CASE("stories: findings about one memory are one, the error that explains first",
          "[tools][stories]") {
  StoryPart warning = freed(0, 0x1000, 7, "other");
  warning.kind = FindingKind::kOutputAliasesInput;
  warning.level = Level::kWarning;
  const std::vector<StoryPart> parts = {warning, stale(0, 0x1000, 7), freed(0, 0x1000, 7),
                                        stale(0, 0x9000, 9)};
  CHECK(tell_stories(parts) == std::vector<Story>{{2, 0, 1}, {3}});
}

TEST_CASE("stories: an error with stacks explains more than one without", "[tools][stories]") {
  StoryPart bare = freed(0, 0x1000, 7);
  bare.stacks = 0;
  StoryPart silenced = freed(0, 0x1000, 7);
  silenced.suppressed = true;
  CHECK(tell_stories(std::vector{silenced, bare, freed(1, 0x1000, 8)}) ==
        std::vector<Story>{{2, 0, 1}});
}

TEST_CASE("stories: addresses mean the same memory in one step and one life alone",
          "[tools][stories]") {
  const auto count = [](const StoryPart& a, const StoryPart& b) {
    return tell_stories(std::vector{a, b}).size();
  };
  CHECK(count(stale(3, 0x1000, 1), stale(3, 0x10FF, 2)) == 1);
  CHECK(count(stale(3, 0x10FF, 1), stale(3, 0x1000, 2)) == 1);
  CHECK(count(stale(3, 0x1000, 1), stale(3, 0x1100, 2)) == 2);
  CHECK(count(stale(3, 0x1000, 1), stale(4, 0x1000, 2)) == 2);
  StoryPart other_rank = stale(3, 0x1000, 1);
  other_rank.rank = 1;
  CHECK(count(stale(3, 0x1000, 1), other_rank) == 2);
  StoryPart first = stale(3, 0x1000, 0), second = stale(3, 0x1000, 0);
  first.generation = 5;
  second.generation = 6;
  CHECK(count(first, second) == 2);
  second.generation = 5;
  second.step = 9;
  CHECK(count(first, second) == 1);
  // Of nothing that is known of two findings it follows that they are about one thing.
  CHECK(count(stale(3, 0, 0), stale(3, 0, 0)) == 2);
}

TEST_CASE("stories: what the same code does again is a later occurrence", "[tools][stories]") {
  std::vector<StoryPart> parts;
  for (uint32_t step = 0; step < 3; ++step) {
    parts.push_back(freed(step, 0x1000, 10 + step));
    parts.push_back(stale(step, 0x1000, 10 + step));
  }
  parts.push_back(freed(1, 0x8000, 99, "g"));
  const std::vector<Story> stories = tell_stories(parts);
  CHECK(stories == std::vector<Story>{{0, 1, 2, 3, 4, 5}, {6}});
  CHECK(story_lines(parts, stories[0]) ==
        std::vector<std::string>{
            "stale-read (error) 3 times in steps 0 to 2, forward, h.0.norm",
            "freed-under-output (error) 2 times in steps 1 to 2, forward, h.0, op f"});
  CHECK(story_lines(parts, stories[1]).empty());
}

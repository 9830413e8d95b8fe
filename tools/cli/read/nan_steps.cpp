#include "tools/cli/read/nan_steps.h"

namespace convtrace::tools {
namespace {

/// The trace is not trusted: a step may have any number of values.
constexpr size_t kMostOfStep = 1 << 20;

bool has_consequence(diff::NanStory::Kind kind) {
  return kind == diff::NanStory::Kind::kBorn || kind == diff::NanStory::Kind::kFromData;
}

}  // namespace

bool NanSteps::add(const format::TensorStats& event) {
  Step* const step = open_.at(event.header.step);
  if (step != nullptr && step->seen.size() < kMostOfStep) {
    step->passed.push_back(diff::passed_of(event, names_));
    step->seen.push_back(seen_of(event, names_));
  }
  while (!found_ && open_.is_first_whole()) judge_first();
  return found_.has_value();
}

std::optional<NanFound> NanSteps::find() {
  while (!found_ && !open_.empty()) judge_first();
  if (!found_) return harmless_;
  found_->harmless = harmless_value_;
  return found_;
}

void NanSteps::judge_first() {
  const Step step = open_.take_first().second;
  for (const diff::NanStory& story : stories_.see(step.passed)) {
    NanFound found{.seq = step.seen[story.value].seq,
                   .kind = story.kind,
                   .made_by = stories_.maker_of(step.passed, story.value)};
    if (has_consequence(story.kind)) {
      if (story.reached) found.reached = step.seen[*story.reached];
      if (story.ended && !harmless_value_) harmless_value_ = step.seen[*story.ended];
      found_ = std::move(found);
    } else if (!harmless_) {
      harmless_value_ = step.seen[story.value];
      harmless_ = std::move(found);
    }
  }
}

}  // namespace convtrace::tools

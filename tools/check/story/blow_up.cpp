#include "tools/check/story/blow_up.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "tools/common/text.h"

namespace convtrace::check {
namespace {

constexpr size_t kStepsTold = 8;

/// The largest update of the steps of a rise and of the one before it, which led to it.
double largest_update(const Story& story, const StoryEvent& event) {
  double largest = 0;
  for (size_t i = 0; i < story.steps.size(); ++i) {
    const bool next_is_in = i + 1 < story.steps.size() && story.steps[i + 1].step >= event.step;
    const auto& update = story.steps[i].of(Series::kUpdate);
    if (next_is_in && update && std::isfinite(*update)) largest = std::max(largest, *update);
  }
  return largest;
}

std::string share_text(double update) {
  return update < 1 ? tools::percent_text(update, 2) + " of" : tools::times_text(update) + " times";
}

std::string losses_text(const Story& story, const StoryEvent& event) {
  std::string text = "losses";
  size_t told = 0;
  for (size_t i = 0; i < story.steps.size() && told < kStepsTold; ++i) {
    const StoryStep& step = story.steps[i];
    const bool near = i + 2 < story.steps.size() && story.steps[i + 2].step >= event.step;
    if (!near && step.step < event.step) continue;
    if (const auto& loss = step.of(Series::kLoss))
      text += (told++ == 0 ? " " : ", ") + tools::number_text(*loss, 4);
    if (event.until && step.step >= *event.until) break;
  }
  return text;
}

}  // namespace

void add_blow_ups(const Story& story, std::vector<Finding>& findings) {
  for (const StoryEvent& event : story.events) {
    if (event.kind != StoryEvent::Kind::kBlowUp || event.series != Series::kLoss) continue;
    const double update = largest_update(story, event);
    const bool sure = event.until.has_value() || update >= 1;
    Finding finding{.id = "blow-up",
                    .severity = sure ? Severity::kWarning : Severity::kHint,
                    .rank = story.rank,
                    .step = event.step};
    finding.phase = event.scope ? format::Phase::kForward : format::Phase::kLoss;
    finding.scope = event.scope.value_or("");
    finding.slot = event.scope ? event.slot : "loss";
    finding.text = event.text;
    finding.text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(finding.text[0])));
    finding.evidence = {losses_text(story, event)};
    if (update > 0)
      finding.evidence.push_back("updates up to about " + share_text(update) +
                                 " the size of the weights");
    finding.cause =
        "a learning rate that is too large for this model, or a warm-up or clipping "
        "that is missing";
    finding.next = "convtrace show --norms TRACE, from step " + std::to_string(event.step) +
                   " on; a smaller learning rate";
    const auto ends_in = [&](const Finding& one) {
      return one.id == "nan" && one.cause == kCausesOfNan && event.until && one.step == event.until;
    };
    for (Finding& nan : findings)
      if (ends_in(nan))
        nan.cause = "it follows a rise of the loss from step " + std::to_string(event.step) +
                    " on (blow-up): " + std::string(kCausesOfNan);
    findings.push_back(std::move(finding));
  }
}

}  // namespace convtrace::check

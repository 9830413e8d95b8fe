#include "tools/check/report/story_text.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/common/escape.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

using tools::Json;

constexpr std::string_view kNames[] = {"loss", "gradients", "updates"};
constexpr size_t kNumbersShown = 9, kBeforeShown = 2;

std::string value_text(Series series, double value) {
  if (series == Series::kUpdate && value < 10) return tools::percent_text(value, 2);
  return tools::number_text(value, 3);
}

/// "loss 1.53 to 1.31": the first and the last of a run in which nothing happened.
std::string range_text(const Story& story, Series series) {
  const StoryStep *first = nullptr, *last = nullptr;
  for (const StoryStep& step : story.steps) {
    if (!step.of(series)) continue;
    if (first == nullptr) first = &step;
    last = &step;
  }
  if (first == nullptr) return "";
  return std::string(series == Series::kNorm ? "gradient norm"
                                             : kNames[static_cast<size_t>(series)]) +
         " " + value_text(series, *first->of(series)) + " to " +
         value_text(series, *last->of(series)) +
         (series == Series::kUpdate ? " of the weights" : "");
}

/// The numbers around a step: two before it, and what follows up to where all are alike.
std::string numbers_text(const Story& story, Series series, uint32_t around) {
  std::vector<const StoryStep*> steps;
  for (const StoryStep& step : story.steps)
    if (step.of(series)) steps.push_back(&step);
  const auto at = std::ranges::lower_bound(steps, around, {}, &StoryStep::step);
  auto from = at - std::min<ptrdiff_t>(at - steps.begin(), kBeforeShown);
  std::string text;
  const uint32_t first = from == steps.end() ? 0 : (*from)->step;
  for (size_t i = 0; i < kNumbersShown && from != steps.end(); ++i, ++from) {
    text += (i == 0 ? "" : ", ") + value_text(series, *(*from)->of(series));
    if (!std::isfinite(*(*from)->of(series)) && i > kBeforeShown) break;
  }
  return text + " (from step " + std::to_string(first) + " on)";
}

std::string label_of(std::string name) {
  constexpr size_t kLabel = 12;
  name.resize(std::max(kLabel, name.size() + 1), ' ');
  return name;
}

}  // namespace

const Story* story_to_tell(const CheckResult& result) {
  const Story* best = nullptr;
  const auto first_of = [](const Story& story) {
    return story.events.empty() ? UINT32_MAX : story.events.front().step;
  };
  for (const Story& story : result.stories) {
    if (story.steps.empty()) continue;
    if (best == nullptr || first_of(story) < first_of(*best)) best = &story;
  }
  return best;
}

std::vector<std::pair<std::string, std::string>> story_lines(const CheckResult& result) {
  std::vector<std::pair<std::string, std::string>> lines;
  const Story* const story = story_to_tell(result);
  if (story == nullptr) return lines;
  const bool several = result.stories.size() > 1;
  const std::string rank = several ? "rank " + std::to_string(story->rank) + ": " : "";
  std::array<uint64_t, kSeriesCount> told{};
  std::string quiet;
  bool not_finite = false;
  for (const Series series : {Series::kLoss, Series::kNorm, Series::kUpdate}) {
    const auto first = std::ranges::find_if(story->events, [series](const StoryEvent& event) {
      return event.is_rise() && event.series == series;
    });
    if (first == story->events.end()) {
      const std::string range = range_text(*story, series);
      quiet += (quiet.empty() || range.empty() ? "" : ", ") + range;
      continue;
    }
    lines.emplace_back(label_of(std::string(kNames[static_cast<size_t>(series)])),
                       numbers_text(*story, series, first->step));
  }
  if (!quiet.empty())
    lines.emplace(lines.begin(), label_of("story"),
                  rank + quiet + " in steps " + std::to_string(story->steps.front().step) + " to " +
                      std::to_string(story->steps.back().step));
  for (const StoryEvent& event : story->events) {
    const bool rise = event.is_rise();
    if (rise && told[static_cast<size_t>(event.series)]++ != 0) continue;
    // A value that is not finite makes all later ones so.
    const bool bad = event.kind == StoryEvent::Kind::kNotFinite;
    if (bad && std::exchange(not_finite, true)) continue;
    const auto more = std::ranges::count_if(story->events, [&](const StoryEvent& other) {
      return rise && other.is_rise() && other.series == event.series;
    });
    lines.emplace_back(label_of(std::string(to_string(event.kind))),
                       tools::escape_text(event.text) +
                           (more > 1 ? " (the first of " + std::to_string(more) + ")" : ""));
  }
  return lines;
}

Json story_json(const Story& story) {
  Json json{{"rank", story.rank},
            {"trace", story.path},
            {"steps", Json::array()},
            {"events", Json::array()}};
  for (const StoryStep& step : story.steps) {
    Json row{{"step", step.step}, {"backward_passes", step.passes}};
    for (const Series series : {Series::kLoss, Series::kNorm, Series::kUpdate})
      row[std::string(to_string(series))] =
          step.of(series) ? tools::json_number(*step.of(series)) : Json();
    json["steps"].push_back(std::move(row));
  }
  for (const StoryEvent& event : story.events) {
    const bool rise = event.is_rise();
    json["events"].push_back({{"kind", to_string(event.kind)},
                              {"of", rise ? Json(to_string(event.series)) : Json()},
                              {"step", event.step},
                              {"until", event.until ? Json(*event.until) : Json()},
                              {"before", rise ? tools::json_number(event.before) : Json()},
                              {"value", rise ? tools::json_number(event.value) : Json()},
                              {"scope", event.scope ? Json(*event.scope) : Json()},
                              {"slot", tools::text_or_null(event.slot)},
                              {"count", event.count},
                              {"text", event.text}});
  }
  return json;
}

}  // namespace convtrace::check

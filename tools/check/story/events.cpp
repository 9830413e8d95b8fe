#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "tools/check/story/series.h"
#include "tools/check/story/teller.h"
#include "tools/common/text.h"

namespace convtrace::check {
namespace {

using Steps = std::vector<StoryStep>;
using Marks = std::vector<StepMarks>;
using EventKind = StoryEvent::Kind;
using tools::module_text;

constexpr std::string_view kTold[] = {"the loss", "the gradient norm", "the size of the updates"};

std::string step_text(uint32_t step) { return "step " + std::to_string(step); }

std::string size_text(const StoryEvent& event, double value) {
  const bool share = event.series == Series::kUpdate && value < 10;
  return share ? tools::percent_text(value, 2) + " of the weights" : tools::number_text(value, 3);
}

class Events {
 public:
  Events(const Steps& steps, const Marks& marks, const format::Definitions& names)
      : steps_(steps), marks_(marks), names_(names) {}

  std::vector<StoryEvent> find() {
    // Steps that update other parameters, or have other numbers of losses, are series of their own:
    // those of a critic and of its generator.
    std::map<std::pair<uint64_t, uint32_t>, std::vector<size_t>> kinds;
    for (size_t i = 0; i < steps_.size(); ++i)
      kinds[{marks_[i].updated, steps_[i].passes}].push_back(i);
    for (const auto& [kind, indices] : kinds)
      for (const Series series : {Series::kLoss, Series::kNorm, Series::kUpdate})
        take_series(series, indices);
    find_epochs();
    find_short_groups();
    std::ranges::stable_sort(events_, {}, &StoryEvent::step);
    return std::move(events_);
  }

 private:
  void take_series(Series series, const std::vector<size_t>& all) {
    std::vector<size_t> indices;
    std::vector<double> numbers;
    for (const size_t i : all) {
      const std::optional<double>& value = steps_[i].of(series);
      if (!value) continue;
      // A schedule is no rise: an update counts by its learning rate.
      const bool by_rate = series == Series::kUpdate && marks_[i].rate > 0;
      indices.push_back(i);
      numbers.push_back(by_rate ? *value / marks_[i].rate : *value);
    }
    for (const Rise& rise : rises_of(numbers)) {
      const bool climbs = rise.kind == Rise::Kind::kBlowUp && !rise.end;
      if (climbs && series != Series::kLoss) continue;
      tell(series, rise, indices);
    }
  }

  void tell(Series series, const Rise& rise, const std::vector<size_t>& indices) {
    const size_t at = indices[rise.at];
    StoryEvent event{.kind = static_cast<EventKind>(rise.kind), .series = series};
    event.step = steps_[at].step;
    if (rise.end) event.until = steps_[indices[*rise.end]].step;
    const double rate = series == Series::kUpdate && marks_[at].rate > 0 ? marks_[at].rate : 1;
    event.before = rise.before * rate;
    event.value = rise.most * rate;
    const StepMarks::Where& where = marks_[at].places[static_cast<size_t>(series)];
    if (where.known) {
      event.scope = names_.text(where.scope);
      event.slot = names_.text(where.slot);
    }
    event.text =
        rise_text(event, rise.first * rate) + place_text(event) + update_text(event, at) + ".";
    events_.push_back(std::move(event));
  }

  static std::string rise_text(const StoryEvent& event, double first) {
    std::string text(kTold[static_cast<size_t>(event.series)]);
    const std::string in = " in " + step_text(event.step);
    switch (event.kind) {
      case EventKind::kNotFinite:
        return text + " is not finite from " + step_text(event.step) + " on, at once";
      case EventKind::kBlowUp:
        text += " rises in each step from " + step_text(event.step) + " on, from " +
                size_text(event, event.before) + " to " + size_text(event, event.value);
        return event.until ? text + ", and is not finite in " + step_text(*event.until) : text;
      default: break;
    }
    text += " jumps to " + size_text(event, first) + in;
    if (event.before > 0)
      text += ", " + tools::times_text(first / event.before) + " times what it was before";
    if (event.value > first) text += ", later up to " + size_text(event, event.value);
    return text + (event.until ? ", and is back in " + step_text(*event.until)
                               : ", and does not come back");
  }

  static std::string place_text(const StoryEvent& event) {
    if (event.series == Series::kLoss) {
      if (event.scope)
        return "; first out of its range there: " + event.slot + " of " + module_text(*event.scope);
      return event.kind == EventKind::kSpike || event.kind == EventKind::kJump
                 ? "; no recorded output of a module is out of its range there: look at the labels "
                   "and the loss"
                 : "";
    }
    return event.scope ? "; most of it in " + event.slot + " of " + module_text(*event.scope) : "";
  }

  /// @return the size of the previous update relative to the weights, in words.
  std::string update_text(const StoryEvent& event, size_t at) const {
    if (event.series != Series::kLoss || event.kind != EventKind::kBlowUp || at == 0) return "";
    const std::optional<double>& update = steps_[at - 1].of(Series::kUpdate);
    if (!update || !std::isfinite(*update)) return "";
    return "; the update of " + step_text(steps_[at - 1].step) + " is about " +
           tools::percent_text(*update, 2) + " of the weights' size";
  }

  /// The first stretch of steps that takes the batches of an earlier one, all in the same order.
  void find_epochs() {
    std::map<uint64_t, size_t> last;
    size_t period = 0, matched = 0;
    for (size_t i = 0; i < marks_.size(); ++i) {
      const uint64_t data = marks_[i].data;
      const auto before = data == 0 ? last.end() : last.find(data);
      const size_t distance = before == last.end() ? 0 : i - before->second;
      matched = distance != 0 && distance == period ? matched + 1 : (distance != 0 ? 1 : 0);
      period = distance;
      if (data != 0) last[data] = i;
      if (period < 2 || matched < period) continue;
      tell_epoch(i + 1 - period, period);
      return;
    }
  }

  void tell_epoch(size_t begin, size_t period) {
    const size_t end = begin + period - 1;
    bool losses = true;
    for (size_t i = begin; i <= end; ++i) {
      const auto& now = steps_[i].of(Series::kLoss);
      losses &= now && now == steps_[i - period].of(Series::kLoss);
    }
    StoryEvent event{.kind = EventKind::kEpochs, .step = steps_[begin].step};
    event.until = steps_[end].step;
    event.count = period;
    event.text = "steps " + std::to_string(steps_[begin].step) + " to " +
                 std::to_string(steps_[end].step) + " take the batches of steps " +
                 std::to_string(steps_[begin - period].step) + " to " +
                 std::to_string(steps_[end - period].step) + ", bit for bit and in the same order" +
                 (losses ? ", and have the same losses: nothing was learned in between."
                         : ": no shuffling, or one that begins again with each epoch.");
    events_.push_back(std::move(event));
  }

  void find_short_groups() {
    std::map<uint32_t, size_t> groups;
    for (const StoryStep& step : steps_) ++groups[step.passes];
    const auto most =
        std::ranges::max_element(groups, {}, [](const auto& one) { return one.second; });
    if (most == groups.end() || most->first < 2 || 2 * most->second <= steps_.size()) return;
    const uint32_t whole = most->first;
    const StoryStep* first = nullptr;
    uint32_t divisor = 0, count = 0;
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (steps_[i].passes == 0 || steps_[i].passes >= whole) continue;
      if (count++ != 0) continue;
      first = &steps_[i];
      divisor = marks_[i].divisor;
    }
    if (first == nullptr) return;
    StoryEvent event{.kind = EventKind::kShortGroup, .step = first->step};
    event.count = first->passes;
    event.before = whole;
    event.value = first->passes;
    const std::string share = std::to_string(first->passes) + "/" + std::to_string(whole);
    event.text = step_text(first->step) + " adds the gradients of " +
                 std::to_string(first->passes) +
                 (first->passes == 1 ? " backward pass" : " backward passes") +
                 ", other steps those of " + std::to_string(whole);
    if (count > 1) event.text += " (" + std::to_string(count) + " such steps)";
    if (divisor == whole) {
      event.text += "; each of its losses is divided by " + std::to_string(whole) +
                    ", too, so its gradient is " + share + " of a mean.";
    } else if (divisor == first->passes) {
      event.text += "; its losses are divided by their own number.";
    } else {
      event.text += ": where each loss is divided by " + std::to_string(whole) +
                    ", its gradient is " + share + " of a mean.";
    }
    events_.push_back(std::move(event));
  }

  const Steps& steps_;
  const Marks& marks_;
  const format::Definitions& names_;
  std::vector<StoryEvent> events_;
};

}  // namespace

std::vector<StoryEvent> events_of(const Steps& steps, const Marks& marks,
                                  const format::Definitions& names) {
  return Events(steps, marks, names).find();
}

}  // namespace convtrace::check

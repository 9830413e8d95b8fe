#include "tools/check/story/teller.h"

#include <algorithm>
#include <cmath>

#include "tools/check/model/batch.h"
#include "tools/trace/model/hash_mix.h"

namespace convtrace::check {
namespace {

using format::Phase;

/// @param finite  a statistic of the finite elements. @return the same of all.
double with_others(double finite, const format::Stats& stats) {
  if (stats.nan != 0 || (stats.pos_inf != 0 && stats.neg_inf != 0)) return std::nan("");
  if (stats.pos_inf != 0) return HUGE_VAL;
  return stats.neg_inf != 0 ? -HUGE_VAL : finite;
}

/// A norm has no sign.
double norm_of(const Value& value) {
  const double norm = with_others(value.stats.l2, value.stats);
  return std::isinf(norm) ? HUGE_VAL : norm;
}

/// @return the number by which the mean that a criterion gave was divided to become the loss.
uint32_t divisor_of(const StepValues& step, const Surroundings& around) {
  const Value* const loss = step.losses.front();
  if (!loss->finite() || loss->stats.mean == 0) return 0;
  for (const auto& [key, call] : step.calls) {
    const bool criterion = around.facts.class_of(key.scope).find("Loss") != std::string_view::npos;
    if (!criterion || key.op || call.outputs.size() != 1 || call.outputs[0]->stats.count != 1)
      continue;
    const double ratio = call.outputs[0]->stats.mean / loss->stats.mean;
    const double whole = std::round(ratio);
    if (whole >= 1 && whole < 1e6 && std::abs(ratio - whole) < 1e-5 * whole)
      return static_cast<uint32_t>(whole);
  }
  return 0;
}

}  // namespace

bool StoryTeller::Past::rises(float size) {
  constexpr float kTimesPast = 2;
  bool rose = false;
  if (seen >= 2) {
    float top = last[(seen - 1) % kSteps];
    for (uint32_t i = 0; i < std::min(seen, kSteps); ++i) top = std::max(top, last[i]);
    rose = size - top > kTimesPast * largest_change && size - top > std::log(1.25F);
  }
  if (seen >= 1 && !rose)
    largest_change = std::max(largest_change, std::abs(size - last[(seen - 1) % kSteps]));
  last[seen++ % kSteps] = size;
  return rose;
}

void StoryTeller::see(const StepValues& step, const Surroundings& around) {
  StepMarks marks;
  StoryStep numbers{.step = step.number, .passes = static_cast<uint32_t>(step.losses.size())};
  for (const auto& [parameter, now] : step.parameters)
    if (now.initial != nullptr) last_[parameter] = *now.initial;
  if (step.trains) find_output(step, marks);
  if (!step.trains) return;
  double loss = 0;
  bool measured = !step.losses.empty();
  for (const Value* one : step.losses) {
    measured &= one->measured();
    loss += with_others(one->stats.mean, one->stats);
  }
  if (measured) {
    numbers.numbers[static_cast<size_t>(Series::kLoss)] = loss;
    marks.divisor = divisor_of(step, around);
  }
  sum_gradients(step, numbers, marks);
  sum_updates(step, numbers, marks);
  marks.rate = around.facts.largest_rate().value_or(0);
  const Batch batch = batch_of(step);
  if (batch.content != nullptr) marks.data = batch.signature;
  steps_.push_back(numbers);
  marks_.push_back(marks);
}

void StoryTeller::sum_gradients(const StepValues& step, StoryStep& numbers, StepMarks& marks) {
  double sum = 0, most = -1;
  bool any = false;
  StepMarks::Where& where = marks.places[static_cast<size_t>(Series::kNorm)];
  for (const auto& [parameter, now] : step.parameters) {
    const Value* const gradient = now.of_backward();
    if (gradient == nullptr || !gradient->measured()) continue;
    any = true;
    const double norm = norm_of(*gradient);
    sum += norm * norm;
    if (norm <= most) continue;
    where = {.scope = parameter.scope, .slot = gradient->slot, .known = true};
    most = norm;
    if (!std::isfinite(norm)) most = HUGE_VAL;
  }
  if (any) numbers.numbers[static_cast<size_t>(Series::kNorm)] = std::sqrt(sum);
}

void StoryTeller::sum_updates(const StepValues& step, StoryStep& numbers, StepMarks& marks) {
  double moved = 0, size = 0, most = -1;
  StepMarks::Where& where = marks.places[static_cast<size_t>(Series::kUpdate)];
  for (const auto& [parameter, now] : step.parameters) {
    if (now.updates.empty()) continue;
    const Value& after = *now.updates.back();
    marks.updated += diff::mix_all({parameter.scope.value, parameter.name.value});
    const auto known = last_.find(parameter);
    if (known != last_.end() && known->second.measured() && after.measured()) {
      const Value& before = known->second;
      const bool same = before.stats.hash == after.stats.hash;
      double update = same ? 0 : relative_distance(before, after) * before.stats.l2;
      if (!same && before.stats.l2 == 0) update = after.stats.l2;
      if (!after.finite()) update = std::nan("");
      moved += update * update;
      size += before.stats.l2 * before.stats.l2;
      if (update > most) {
        most = update;
        where = {.scope = parameter.scope, .slot = after.slot, .known = true};
      }
    }
    last_[parameter] = after;
  }
  if (size > 0) numbers.numbers[static_cast<size_t>(Series::kUpdate)] = std::sqrt(moved / size);
}

/// Finds the first value of the forward pass outside of its past range: the begin of a rise.
void StoryTeller::find_output(const StepValues& step, StepMarks& marks) {
  StepMarks::Where& where = marks.places[static_cast<size_t>(Series::kLoss)];
  for (const Value& value : step.values) {
    const bool data = value.role == Role::kInput && value.place.phase == Phase::kData;
    const bool output = value.role == Role::kOutput && value.place.phase == Phase::kForward;
    if ((!data && !output) || value.op || value.kernel || !value.measured()) continue;
    if (format::number_class(value.dtype) != format::NumberClass::kFloat) continue;
    const double size = value.rms();
    if (!(size > 0) || !std::isfinite(size)) continue;
    const bool rose = pasts_[{value.place.scope, value.slot, value.place.call}].rises(
        static_cast<float>(std::log(size)));
    if (rose && !where.known)
      where = {.scope = value.place.scope, .slot = value.slot, .known = true};
  }
}

Story StoryTeller::tell(const Surroundings& around) {
  Story story{.rank = around.rank};
  story.events = events_of(steps_, marks_, around.names);
  story.steps = std::move(steps_);
  return story;
}

}  // namespace convtrace::check

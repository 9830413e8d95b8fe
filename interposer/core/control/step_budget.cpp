#include "interposer/core/control/step_budget.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <utility>

namespace convtrace::engine {
namespace {

constexpr uint32_t kChoices[] = {1, 2, 5, 10, 20, 50, 100};
/// If the measurement's error leaves the choice open, measuring continues until it has recorded as many
/// steps with values as the decision would keep of this many steps.
constexpr uint32_t kPaidBack = 200;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// @return the standard deviation, without regard to the few that are far off.
double deviation(std::vector<double> values) {
  const double center = median(values);
  for (double& value : values) value = std::abs(value - center);
  return 1.4826 * median(std::move(values));
}

/// @return the least choice with which `cost` a step is at most `allowed`.
uint32_t every_for(double cost, double allowed) {
  const auto* const found =
      std::ranges::find_if(kChoices, [&](uint32_t every) { return cost / every <= allowed; });
  return found == std::end(kChoices) ? *std::rbegin(kChoices) : *found;
}

settings::StepSet set_of(const std::string& text) {
  return settings::StepSet::parse_steps(text).value();
}

std::string percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g%%", 100 * fraction);
  return text;
}

}  // namespace

StepBudget::StepBudget(double asked)
    : asked_(asked), steps_(set_of("all,every=" + std::to_string(kRound))) {}

bool StepBudget::open(uint32_t step, uint64_t now_ns, uint64_t spent_ns) {
  const Span now{static_cast<double>(now_ns), static_cast<double>(spent_ns)};
  const bool follows = step_ && step == *step_ + 1;
  if (follows) note_span(*step_, {now.ns - began_.ns, now.spent_ns - began_.spent_ns});
  step_ = step;
  began_ = now;
  if (decision_) return false;
  if (!follows) in_round_ = 0;
  if (step % kRound != 0) return false;
  // In the first round memory, kernels and compiled code are made.
  if (in_round_ == kRound && step > kRound) end_round();
  in_round_ = 0;
  decision_ = decide(step);
  if (!decision_) return false;
  const uint32_t every = decision_->every;
  steps_ = set_of("0-" + std::to_string(step - 1) + ",every=" + std::to_string(kRound) + '|' +
                  std::to_string(decision_->first) + '-' +
                  (every == 1 ? "" : ",every=" + std::to_string(every)));
  return true;
}

void StepBudget::note_span(uint32_t step, const Span& span) {
  if (!decision_) {
    if (step % kRound == in_round_) round_[in_round_++] = span;
    return;
  }
  const auto had_values = [&](uint32_t ago) { return step >= ago && steps_.contains(step - ago); };
  if (had_values(0) || had_values(1) || had_values(2)) return;
  plain_.ns += span.ns;
  plain_.spent_ns += span.spent_ns;
}

void StepBudget::end_round() {
  const Span with{round_[0].ns + round_[1].ns + round_[2].ns,
                  round_[0].spent_ns + round_[1].spent_ns + round_[2].spent_ns};
  const Span without{round_[3].ns + round_[4].ns, round_[3].spent_ns + round_[4].spent_ns};
  extra_ns_.push_back(with.ns - 1.5 * without.ns);
  for (const size_t i : {size_t{3}, size_t{4}}) plain_ns_.push_back(round_[i].ns);
  extra_spent_ns_ += with.spent_ns - 1.5 * without.spent_ns;
  plain_.ns += without.ns;
  plain_.spent_ns += without.spent_ns;
}

double StepBudget::unavoidable() const {
  // Calls of several threads may take more than the time that passes.
  const double untraced = std::max(plain_.ns - plain_.spent_ns, plain_.ns / 100);
  return untraced > 0 ? plain_.spent_ns / untraced : 0;
}

std::optional<StepBudget::Decision> StepBudget::decide(uint32_t step) const {
  const size_t rounds = extra_ns_.size();
  if (rounds < kRounds) return std::nullopt;
  const double untraced = median(plain_ns_) / (1 + unavoidable());
  if (untraced <= 0) return std::nullopt;
  // The calls of convtrace took at least their own time.
  const double extra =
      std::max({0.0, median(extra_ns_), extra_spent_ns_ / static_cast<double>(rounds)});
  const double allowed = asked_ - unavoidable();
  // A round is three steps less three halves of two others.
  const double noise =
      std::max(deviation(extra_ns_), std::sqrt(3 + 2 * 2.25) * deviation(plain_ns_));
  const double error = 1.2533 * noise / std::sqrt(static_cast<double>(rounds));
  const uint32_t least = every_for(extra / untraced, allowed);
  const uint32_t every = every_for((extra + error) / untraced, allowed);
  const uint32_t kept = (step + kRound - 1) / kRound;
  if (least != every && kept * least < kPaidBack && rounds < kMostRounds) return std::nullopt;
  const uint32_t paid_back = std::max(step, kept * every);
  return Decision{.every = every,
                  .first = (paid_back + every - 1) / every * every,
                  .ratio = 1 + extra / median(plain_ns_),
                  .added = extra / untraced / every};
}

std::string StepBudget::text() const {
  const std::string asked = percent(asked_) + " asked; ";
  if (!decision_) {
    return asked + "not decided: that takes " + std::to_string(kRound * (1 + kRounds)) +
           " steps or more (a step is an update)";
  }
  char ratio[32];
  std::snprintf(ratio, sizeof ratio, "%.3g", decision_->ratio);
  const double sum = decision_->added + unavoidable();
  return asked + "a step with values takes " + ratio + " times one without: one of " +
         std::to_string(decision_->every) + " has values from step " +
         std::to_string(decision_->first) + " on, which adds " + percent(decision_->added) +
         "; in steps without values convtrace takes at least " + percent(unavoidable()) +
         (sum > asked_ ? ": " + percent(asked_) + " is out of reach" : "");
}

}  // namespace convtrace::engine

#include "tools/diff/equal_steps.h"

#include <algorithm>

#include "reader/step_sums.h"

namespace convtrace::diff {
namespace {

using format::StepSums;
using reader::kKindSet;

constexpr reader::KindSet kConditions = kKindSet<format::Finding, format::Loss>;
constexpr reader::KindSet kValues = kKindSet<format::TensorStats>;
constexpr reader::KindSet kLaunches = kKindSet<format::Launch>;

const StepSums* find(const std::vector<StepSums>& sums, uint32_t step) {
  const auto found = std::ranges::lower_bound(sums, step, {}, &StepSums::step);
  return found != sums.end() && found->step == step ? &*found : nullptr;
}

bool same_keys(const StepSums& a, const StepSums& b) {
  return a.launches == b.launches && a.values == b.values && a.key_sum == b.key_sum;
}

bool any_of(const std::vector<uint32_t>& steps, const format::RecordHeader& chunk) {
  const auto first = std::ranges::lower_bound(steps, chunk.step_begin);
  return first != steps.end() && *first <= chunk.step_end;
}

}  // namespace

EqualSteps::EqualSteps(const reader::TraceReader& base, const reader::TraceReader& cand,
                       bool every_value) {
  for (const reader::TraceReader* trace : {&base, &cand}) {
    if (trace->state() == reader::TraceState::kDamaged) return;
  }
  const std::vector<StepSums> ours = reader::load_step_sums(base.container());
  const std::vector<StepSums> theirs = reader::load_step_sums(cand.container());
  for (const auto* sums : {&ours, &theirs}) {
    // Chunks do not say whether they hold such events.
    if (!sums->empty() && sums->back().step == format::kNoStep) return;
  }
  known_ = true;
  for (const StepSums& step : ours) {
    const StepSums* other = find(theirs, step.step);
    const bool keys = other != nullptr && same_keys(step, *other);
    if (keys && step == *other && !every_value) {
      same_.push_back(step);
    } else {
      with_values_.push_back(step.step);
      if (keys) {
        same_launches_.push_back(step);
      } else {
        with_launches_.push_back(step.step);
      }
    }
  }
  for (const StepSums& step : theirs) {
    if (find(ours, step.step) != nullptr) continue;
    with_values_.push_back(step.step);
    with_launches_.push_back(step.step);
  }
  std::ranges::sort(with_values_);
  std::ranges::sort(with_launches_);
}

bool EqualSteps::is_same(uint32_t step) const { return find(same_, step) != nullptr; }

std::optional<uint64_t> EqualSteps::same_launches(uint32_t step) const {
  const StepSums* found = find(same_launches_, step);
  return found == nullptr ? std::nullopt : std::optional(found->launches);
}

reader::KindSet EqualSteps::wanted(const format::RecordHeader& chunk) const {
  if (!known_) return kConditions | kValues | kLaunches;
  if (chunk.step_end == format::kNoStep) return kConditions;
  if (any_of(with_launches_, chunk)) return kConditions | kValues | kLaunches;
  if (any_of(with_values_, chunk)) return kConditions | kValues;
  return (chunk.flags & format::kFlagUrgent) != 0 ? kConditions : reader::kNoKinds;
}

}  // namespace convtrace::diff

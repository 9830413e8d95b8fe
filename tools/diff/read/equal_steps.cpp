#include "tools/diff/read/equal_steps.h"

#include <algorithm>
#include <string>
#include <variant>

#include "reader/step_sums.h"

namespace convtrace::diff {
namespace {

using format::StepSums;
using reader::find_step;
using reader::KindSet;
using reader::kKindSet;

constexpr KindSet kNotes = kKindSet<format::Finding, format::Loss>;
constexpr KindSet kValues = kKindSet<format::TensorStats, format::Op>;
constexpr KindSet kLaunches = kKindSet<format::Launch>;

/// The sums of steps with values or launches. Facts of other steps are compared by facts.h.
std::vector<StepSums> shifted_sums(const reader::TraceReader& trace, StepShift shift) {
  std::vector<StepSums> sums = reader::load_step_sums(trace.container());
  std::erase_if(sums, [](const StepSums& step) { return step.values + step.launches == 0; });
  for (StepSums& step : sums) step.step = shift.of(step.step);
  return sums;
}

bool same_keys(const StepSums& a, const StepSums& b) {
  return a.launches == b.launches && a.values == b.values && a.key_sum == b.key_sum;
}

bool any_of(const std::vector<uint32_t>& steps, const format::RecordHeader& chunk) {
  const auto first = std::ranges::lower_bound(steps, chunk.step_begin);
  return first != steps.end() && *first <= chunk.step_end;
}

/// Sums of the values only, of these steps and of other steps in the same chunks.
std::vector<StepSums> value_sums(reader::TraceReader& trace, const std::vector<uint32_t>& steps) {
  // Chunks do not tell whether they contain values without a known step.
  const bool all = steps.back() == format::kNoStep;
  trace.select([&steps, all](const format::RecordHeader& chunk) {
    const auto first = std::ranges::lower_bound(steps, chunk.step_begin);
    const bool any = all || (first != steps.end() && *first <= chunk.step_end);
    return any ? reader::kKindSet<format::TensorStats> : reader::kNoKinds;
  });
  format::StepSummer summer(trace.definitions());
  while (const format::Event* event = trace.next()) {
    if (const auto* value = std::get_if<format::TensorStats>(event)) summer.add(*value);
  }
  return summer.sums();
}

/// The first step that may be incomplete: the last step of a trace that was not closed.
uint32_t whole_before(const reader::TraceReader& trace, const std::vector<StepSums>& sums) {
  return trace.state() == reader::TraceState::kComplete ? format::kNoStep : sums.back().step;
}

}  // namespace

EqualSteps::EqualSteps(const reader::TraceReader& base, const reader::TraceReader& cand,
                       bool every_value, const StepOffset& offset) {
  for (const reader::TraceReader* trace : {&base, &cand}) {
    if (trace->state() == reader::TraceState::kDamaged) return;
  }
  const std::vector<StepSums> ours = shifted_sums(base, offset.of_base());
  const std::vector<StepSums> theirs = shifted_sums(cand, offset.of_cand());
  for (const auto* sums : {&ours, &theirs}) {
    // Chunks do not tell whether they contain such events.
    if (!sums->empty() && sums->back().step == format::kNoStep) return;
  }
  known_ = true;
  auto& [base_values, cand_values] = with_values_;
  const auto is_same = [&](size_t i) {
    const StepSums* other = find_step(theirs, ours[i].step);
    return other != nullptr && ours[i] == *other;
  };
  const auto differs = [&](size_t i) { return i < ours.size() && !is_same(i); };
  bool all_same = true;
  for (size_t i = 0; i < ours.size(); ++i) all_same &= is_same(i);
  for (size_t i = 0; i < ours.size(); ++i) {
    const StepSums& step = ours[i];
    const StepSums* other = find_step(theirs, step.step);
    const bool same = is_same(i), leads_to_other = differs(i + 1) || differs(i + 2);
    const bool has_first_weights = i == 0 && !all_same;
    const bool is_last = i + 1 == ours.size() && step.values > 0;  // it may be evaluation alone
    if (same && !every_value && !leads_to_other && !has_first_weights && !is_last) {
      unread_.push_back(step);
      continue;
    }
    base_values.push_back(step.step);
    (same ? read_once_ : cand_values).push_back(step.step);
    if (other != nullptr && same_keys(step, *other)) {
      same_launches_.push_back(step);
    } else {
      with_launches_.push_back(step.step);
    }
  }
  for (const StepSums& step : theirs) {
    if (find_step(ours, step.step) != nullptr) continue;
    cand_values.push_back(step.step);
    with_launches_.push_back(step.step);
  }
  std::ranges::sort(cand_values);
  std::ranges::sort(with_launches_);
}

bool EqualSteps::is_read_once(uint32_t step) const {
  return std::ranges::binary_search(read_once_, step);
}

std::optional<uint64_t> EqualSteps::same_launches(uint32_t step) const {
  const StepSums* found = find_step(same_launches_, step);
  return found == nullptr ? std::nullopt : std::optional(found->launches);
}

KindSet EqualSteps::taken(uint32_t step, Side side) const {
  if (!known_) return kValues | kLaunches;
  if (find_step(unread_, step) != nullptr) return reader::kNoKinds;
  if (side == Side::kCand && is_read_once(step)) return reader::kNoKinds;
  return find_step(same_launches_, step) != nullptr ? kValues : kValues | kLaunches;
}

KindSet EqualSteps::wanted(const format::RecordHeader& chunk, Side side) const {
  if (!known_) return kNotes | kValues | kLaunches;
  const bool notes = (chunk.flags & format::kFlagNotes) != 0;
  const bool values = any_of(with_values_[static_cast<size_t>(side)], chunk);
  const bool launches = any_of(with_launches_, chunk);
  return (notes ? kNotes : 0) | (values ? kValues : 0) | (launches ? kLaunches : 0);
}

std::optional<bool> repeats(const std::string& run, const std::string& repetition) {
  const auto base = reader::TraceReader::open(run), other = reader::TraceReader::open(repetition);
  if (!base.ok() || !other.ok()) return std::nullopt;
  const auto ours = reader::load_step_sums(base.value()->container());
  const auto theirs = reader::load_step_sums(other.value()->container());
  if (ours.empty() || theirs.empty()) return std::nullopt;
  bool known = true;
  std::vector<uint32_t> unlike;
  for (const StepSums& step : ours) {
    const StepSums* found = find_step(theirs, step.step);
    known &= found != nullptr;
    if (found != nullptr && *found != step) unlike.push_back(step.step);
  }
  if (!unlike.empty()) {
    const auto values = value_sums(*base.value(), unlike),
               again = value_sums(*other.value(), unlike);
    const uint32_t whole =
        std::min(whole_before(*base.value(), ours), whole_before(*other.value(), theirs));
    for (const uint32_t step : unlike) {
      const StepSums *a = find_step(values, step), *b = find_step(again, step);
      if (a == b || (a != nullptr && b != nullptr && *a == *b)) continue;
      if (step < whole || whole == format::kNoStep) return false;
      known = false;
    }
  }
  for (const auto* trace : {&base, &other})
    known &= trace->value()->state() != reader::TraceState::kDamaged;
  return known ? std::optional(true) : std::nullopt;
}

}  // namespace convtrace::diff

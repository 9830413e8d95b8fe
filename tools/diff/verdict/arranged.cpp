#include "tools/diff/verdict/arranged.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "tools/diff/shown/sums.h"

namespace convtrace::diff {
namespace {

/// A value of a call, by its number among the inputs or outputs.
using OfCall = std::tuple<uint32_t, uint32_t, std::string_view>;

OfCall call_of(const ValueRecord& record, std::string_view number = {}) {
  return {record.key.scope.value, record.key.call, number};
}

bool judges(const ValueRecord& record) {
  return is_parameter_gradient(record.kind) || record.kind == Role::kLoss;
}

bool judges_alone(const StepRecords& step, std::span<const uint32_t> alone) {
  return std::ranges::any_of(alone, [&](uint32_t i) { return judges(step.values[i]); });
}

/// @return whether as much data of each input in a step have the same numbers. Of more data, padding
/// as a rule, it is not known. What is made of outputs differs by rounding, but an input that was
/// given before the first output is given in each call.
bool has_same_numbers(const StepPair& pair) {
  std::map<std::pair<uint32_t, uint32_t>, std::array<Sums, 2>> totals;
  for (const StepRecords* step : {&pair.base, &pair.cand}) {
    bool is_behind_output = false;
    for (const ValueRecord& record : step->values) {
      is_behind_output |= record.kind == Role::kOutput;
      const std::pair input(record.key.scope.value, record.key.slot.value);
      if (is_given(record, is_behind_output && !totals.contains(input)))
        totals[input][step == &pair.cand ? 1 : 0].add(record);
    }
  }
  return std::ranges::all_of(totals, [](const auto& entry) {
    const auto& [base, cand] = entry.second;
    return base.count != cand.count || base.equals(cand);
  });
}

/// @return whether the judged gradients show all that differs: each call whose outputs differ has a
/// gradient, and of a root module's call each output that differs. What has none may be carried to
/// a later step, or serve something else than training.
bool shows_all(const StepPair& pair, const PairReporter& reporter) {
  const auto number_of = [&](const ValueRecord& record) {
    const std::string_view slot = reporter.names().text(record.key.slot);
    return slot.substr(std::min(slot.find(':'), slot.size()));
  };
  std::set<OfCall> roots, differing, graded;
  for (uint32_t m = 0; m < pair.size(); ++m) {
    const ValueRecord& record = pair.base_of(m);
    if (record.key.op || record.key.family) continue;
    if (record.kind == Role::kGradOutput)
      graded.insert({call_of(record), call_of(record, number_of(record))});
    if (is_data(record)) roots.insert(call_of(record));
    if (pair.comparisons[m].verdict != Class::kOtherForm) continue;
    if (is_data(record) || record.kind == Role::kOutput) differing.insert(call_of(record));
    if (record.kind == Role::kOutput && roots.contains(call_of(record)))
      differing.insert(call_of(record, number_of(record)));
  }
  return std::ranges::includes(graded, differing);
}

}  // namespace

bool may_be_arranged(const StepPair& pair) {
  return std::ranges::any_of(pair.alignment.matches, [&pair](const Match& match) {
    const ValueRecord& base = pair.base.values[match.base];
    const ValueRecord& cand = pair.cand.values[match.cand];
    if (base.key.phase == format::Phase::kEvaluation) return false;
    if (is_data(base)) return base.stats.hash != cand.stats.hash;
    const bool passes = base.kind == Role::kInput || base.kind == Role::kOutput;
    return passes && !std::ranges::equal(pair.base.shape_of(base), pair.cand.shape_of(cand));
  });
}

bool is_arranged(const StepPair& pair, Tolerances& by_hand, const PairReporter& reporter) {
  if (judges_alone(pair.base, pair.alignment.base_only)) return false;
  if (judges_alone(pair.cand, pair.alignment.cand_only)) return false;
  bool has_loss = false, has_gradient = false;
  for (uint32_t m = 0; m < pair.size(); ++m) {
    const ValueRecord &record = pair.base_of(m), &cand = pair.cand_of(m);
    const Comparison& comparison = pair.comparisons[m];
    const double unit = std::max(unit_roundoff(record.dtype), unit_roundoff(cand.dtype));
    if (unit > unit_roundoff(format::DType::kF32)) return false;
    // Such as a running average, to which the order of the data matters.
    if (comparison.born && comparison.verdict >= Class::kDiverged && !is_update(record))
      return false;
    if (!judges(record)) continue;
    const bool is_explained =
        is_match(comparison.verdict) || comparison.verdict == Class::kSuspicious;
    if (!is_explained || comparison.waived || by_hand.of(record)) return false;
    (record.kind == Role::kLoss ? has_loss : has_gradient) |= record.stats.l2 > 0;
  }
  return has_loss && has_gradient && has_same_numbers(pair) && shows_all(pair, reporter);
}

}  // namespace convtrace::diff

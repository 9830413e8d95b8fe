#include "tools/diff/verdict/first_weights.h"

#include <algorithm>
#include <string>

#include "tools/diff/births/sources.h"

namespace convtrace::diff {
namespace {

bool is_first_weight(const ValueRecord& record) {
  return record.kind == SlotKind::kParam && record.key.phase == format::Phase::kForward;
}

/// Copies the record of one value into another step.
void copy_value(const StepRecords& from, const ValueRecord& record, StepRecords& to) {
  ValueRecord& copy = to.values.emplace_back(record);
  const auto shape = from.shape_of(record);
  const auto samples = from.samples_of(record);
  copy.dims_at = to.dims.size();
  copy.samples_at = to.samples.size();
  to.dims.insert(to.dims.end(), shape.begin(), shape.end());
  to.samples.insert(to.samples.end(), samples.begin(), samples.end());
}

/// @return whether all updates of the step that `first` knows gave the weights that it has.
bool leads_to(const StepRecords& step, const std::unordered_map<uint64_t, uint64_t>& first) {
  bool found = false;
  for (const ValueRecord& record : step.values) {
    const auto known = is_update(record) ? first.find(parameter_key(record)) : first.end();
    if (known == first.end()) continue;
    if (known->second != record.stats.hash) return false;
    found = true;
  }
  return found;
}

/// Compares one weight. It has diverged if the root's difference is no larger than this one, passed on.
Comparison judge(const ValueView& base, const ValueView& cand, const RootReport& root) {
  Comparison comparison = compare(base, cand);
  if (comparison.verdict != Class::kSuspicious) return comparison;
  comparison.difference = measure(base, cand).rms;
  const bool explains = root.record.comparison.difference <= kGain * comparison.difference;
  comparison.verdict = explains ? Class::kDiverged : Class::kWithinNoise;
  return comparison;
}

}  // namespace

void FirstWeights::take_before(const StepRecords& step, bool in_base) {
  StepRecords& before = before_[in_base ? 0 : 1];
  before.clear();
  before.step = step.step;
  for (const ValueRecord& record : step.values)
    if (is_update(record)) copy_value(step, record, before);
}

std::optional<RootReport> FirstWeights::explain(const StepPair& pair, const RootReport& root,
                                                const PairReporter& reporter) const {
  const bool was_base = !before_[0].values.empty();  // the candidate was resumed
  const StepRecords& before = before_[was_base ? 0 : 1];
  const StepRecords& resumed = was_base ? pair.cand : pair.base;
  if (before.values.empty() || before.step + 1 != resumed.step) return std::nullopt;
  StepRecords old;
  old.step = resumed.step;
  StepPair weights{was_base ? old : resumed, was_base ? resumed : old, {}, {}};
  for (uint32_t i = 0; i < resumed.values.size(); ++i) {
    const ValueRecord& now = resumed.values[i];
    if (!is_first_weight(now)) continue;
    const auto last = std::ranges::find(before.values, parameter_key(now), parameter_key);
    if (last == before.values.end()) continue;
    const auto at = static_cast<uint32_t>(old.values.size());
    copy_value(before, *last, old);
    old.values.back().key = now.key;
    weights.alignment.matches.push_back(was_base ? Match{.base = at, .cand = i}
                                                 : Match{.base = i, .cand = at});
  }
  weights.lineage = trace_lineage(weights.base, weights.cand, weights.alignment);
  std::optional<uint32_t> first;
  for (uint32_t m = 0; m < weights.alignment.matches.size(); ++m) {
    const Comparison& judged = weights.comparisons.emplace_back(judge(
        view(weights.base, weights.base_of(m)), view(weights.cand, weights.cand_of(m)), root));
    const std::string scope = reporter.text(weights.base_of(m).key.scope);
    const bool is_of_root = scope == root.record.scope || is_inside(scope, root.record.scope);
    if (judged.verdict == Class::kDiverged && is_of_root && !first) first = m;
  }
  if (!first) return std::nullopt;
  RootReport weight = report_root(weights, {*first, {}}, reporter);
  weight.matched_before = static_cast<uint64_t>(
      std::count_if(weights.comparisons.begin(), weights.comparisons.begin() + *first,
                    [](const Comparison& one) { return agrees(one.verdict); }));
  return weight;
}

std::optional<int64_t> FirstWeights::offset_at(const StepRecords& base, const StepRecords& cand) {
  if (!first_step_) {
    first_step_ = base.step;
    for (const StepRecords* step : {&base, &cand})
      for (const ValueRecord& record : step->values)
        if (is_first_weight(record))
          first_[step == &base ? 0 : 1].try_emplace(parameter_key(record), record.stats.hash);
  }
  const auto ahead = static_cast<int64_t>(base.step) + 1 - static_cast<int64_t>(*first_step_);
  if (leads_to(base, first_[1])) return -ahead;
  if (leads_to(cand, first_[0])) return ahead;
  return std::nullopt;
}

}  // namespace convtrace::diff

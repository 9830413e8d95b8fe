#include "tools/diff/verdict/first_weights.h"

#include <algorithm>
#include <string>

#include "tools/diff/births/sources.h"

namespace convtrace::diff {
namespace {

using Hashes = std::unordered_map<uint64_t, uint64_t>;

Hashes first_of(const StepRecords& step) {
  Hashes first;
  for (const ValueRecord& record : step.values)
    if (is_first_weight(record)) first.try_emplace(parameter_key(record), record.stats.hash);
  return first;
}

/// @return whether all weights that both maps have are equal, and there is one.
bool are_equal(const Hashes& a, const Hashes& b) {
  bool found = false;
  for (const auto& [parameter, hash] : a) {
    const auto other = b.find(parameter);
    if (other == b.end()) continue;
    if (other->second != hash) return false;
    found = true;
  }
  return found;
}

/// Compares one weight. It has diverged if the root's difference is no larger than this one, passed
/// on.
Comparison judge(const ValueView& base, const ValueView& cand, const RootReport& root) {
  Comparison comparison = compare(base, cand);
  if (comparison.verdict != Class::kSuspicious) return comparison;
  const Apart apart = measure(base, cand);
  comparison.difference = apart.rms;
  comparison.exact = apart.exact;
  const bool explains = root.record.comparison.difference <= kGain * comparison.difference;
  comparison.verdict = explains ? Class::kDiverged : Class::kWithinNoise;
  return comparison;
}

}  // namespace

std::optional<RootReport> FirstWeights::explain(const StepPair& pair, const LastWeights& last,
                                                const RootReport& root,
                                                const PairReporter& reporter) {
  const auto before = [&](bool in_base, const ValueRecord& weight, uint32_t step) {
    const LastWeights::Held* held = last.find(in_base, parameter_key(weight));
    return held != nullptr && is_update(held->record) && held->step + 1 == step ? held : nullptr;
  };
  // The candidate was resumed, unless it is the run with an update before the step.
  const bool was_base = std::ranges::any_of(pair.cand.values, [&](const ValueRecord& one) {
    return is_first_weight(one) && before(true, one, pair.cand.step) != nullptr;
  });
  const StepRecords& resumed = was_base ? pair.cand : pair.base;
  StepRecords old;
  old.step = resumed.step;
  StepPair weights{was_base ? old : resumed, was_base ? resumed : old, {}, {}};
  for (uint32_t i = 0; i < resumed.values.size(); ++i) {
    const ValueRecord& now = resumed.values[i];
    if (!is_first_weight(now)) continue;
    const LastWeights::Held* held = before(was_base, now, resumed.step);
    if (held == nullptr) continue;
    const auto at = static_cast<uint32_t>(old.values.size());
    append(old, held->view()).key = now.key;
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

std::optional<bool> FirstWeights::begin_alike(const StepRecords* base, const StepRecords* cand) {
  if (base == nullptr || cand == nullptr) return std::nullopt;
  const Hashes a = first_of(*base), b = first_of(*cand);
  if (a.empty() || b.empty()) return std::nullopt;
  return are_equal(a, b);
}

bool FirstWeights::take_same_data(const StepRecords* base, const StepRecords* cand) {
  if (base == nullptr || cand == nullptr) return false;
  std::unordered_map<RecordKey, uint64_t, KeyHash> data;
  for (const ValueRecord& record : base->values)
    if (is_data(record)) data.try_emplace(record.key, record.stats.hash);
  bool found = false;
  for (const ValueRecord& record : cand->values) {
    const auto other = is_data(record) ? data.find(record.key) : data.end();
    if (other == data.end()) continue;
    if (other->second != record.stats.hash) return false;
    found = true;
  }
  return found;
}

std::optional<int64_t> FirstWeights::offset_at(const StepRecords& base, const StepRecords& cand) {
  if (!first_step_) {
    first_step_ = base.step;
    now_ = first_ = {first_of(base), first_of(cand)};
  }
  for (const StepRecords* step : {&base, &cand})
    for (const ValueRecord& record : step->values)
      if (is_update(record)) now_[step == &base ? 0 : 1][parameter_key(record)] = record.stats.hash;
  if (are_equal(first_[0], first_[1])) return std::nullopt;
  const auto ahead = static_cast<int64_t>(base.step) + 1 - static_cast<int64_t>(*first_step_);
  if (are_equal(first_[1], now_[0])) return -ahead;
  if (are_equal(first_[0], now_[1])) return ahead;
  return std::nullopt;
}

}  // namespace convtrace::diff

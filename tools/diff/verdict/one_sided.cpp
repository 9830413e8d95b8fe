#include "tools/diff/verdict/one_sided.h"

#include <algorithm>

namespace convtrace::diff {
namespace {

/// Counts the values before `base_end` and `cand_end` of the two runs.
void count(const PairReporter& reporter, const StepPair& pair, uint32_t base_end, uint32_t cand_end,
           OneSided& one_sided) {
  const auto& base_only = pair.alignment.base_only;
  const auto& cand_only = pair.alignment.cand_only;
  const auto in_base = std::ranges::lower_bound(base_only, base_end) - base_only.begin();
  const auto in_cand = std::ranges::lower_bound(cand_only, cand_end) - cand_only.begin();
  if (in_base + in_cand > 0 && one_sided.count == 0) {
    // The extra work of one run lies between common values, so the smaller index came first.
    one_sided.in_cand = in_base == 0 || (in_cand > 0 && cand_only[0] < base_only[0]);
    one_sided.first = one_sided.in_cand ? reporter.of_one(pair.cand, cand_only[0], false)
                                        : reporter.of_one(pair.base, base_only[0], true);
  }
  one_sided.count += static_cast<uint64_t>(in_base + in_cand);
}

/// A killed run has nothing to compare after the last value that both runs have.
std::span<const uint32_t> up_to_end(std::span<const uint32_t> indices, const StepPair& pair,
                                    uint32_t Match::*own, bool other_is_cut) {
  if (!other_is_cut) return indices;
  uint32_t last = 0;
  for (const Match& match : pair.alignment.matches) last = std::max(last, match.*own);
  return indices.first(
      static_cast<size_t>(std::ranges::lower_bound(indices, last) - indices.begin()));
}

}  // namespace

void OneSidedValues::add(const StepPair& pair) {
  count(reporter_, pair, static_cast<uint32_t>(pair.base.values.size()),
        static_cast<uint32_t>(pair.cand.values.size()), in_earlier_steps_);
  const Alignment& all = pair.alignment;
  list(pair.base, up_to_end(all.base_only, pair, &Match::base, pair.cand.may_be_cut), false);
  list(pair.cand, up_to_end(all.cand_only, pair, &Match::cand, pair.base.may_be_cut), true);
}

OneSided OneSidedValues::before(const StepPair& pair, const Match& match) const {
  OneSided all = in_earlier_steps_;
  count(reporter_, pair, match.base, match.cand, all);
  return all;
}

void OneSidedValues::list(const StepRecords& step, std::span<const uint32_t> indices,
                          bool in_cand) {
  for (const uint32_t i : indices) {
    const ValueRecord& record = step.values[i];
    if (ignored_.of(record)) {
      ++waived_;
      continue;
    }
    RecordKey common = record.key;
    common.call = in_cand ? 1 : 0;
    common.occurrence = 0;
    const uint64_t hash = KeyHash()(common);
    const auto [known, is_new] = known_.try_emplace(hash, groups_.size());
    if (is_new && groups_.size() < kMaxOneSided) {
      groups_.push_back({.rank = reporter_.rank(),
                         .in_cand = in_cand,
                         .phase = record.key.phase,
                         .scope = reporter_.text(record.key.scope),
                         .op = reporter_.text(record.key.op),
                         .kernel = reporter_.text(record.key.family),
                         .slot = reporter_.text(record.key.slot),
                         .first_step = step.step});
    }
    if (known->second < groups_.size()) ++groups_[known->second].values;
  }
}

}  // namespace convtrace::diff

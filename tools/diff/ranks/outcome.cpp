#include "tools/diff/ranks/outcome.h"

#include <algorithm>
#include <utility>

#include "tools/common/complaints.h"

namespace convtrace::diff {

using tools::MessageId;

void compare_facts(const TraceFile& base, const TraceFile& cand, const RankOutcome& outcome,
                   RankPart& part) {
  FactDiff facts;
  facts.compare_code(base.meta, cand.meta);
  if (outcome.last_base_step && outcome.last_cand_step) {
    uint32_t last = std::min(*outcome.last_base_step, *outcome.last_cand_step);
    if (outcome.root) last = std::min(last, outcome.root->record.step);
    if (!facts.compare_rank(base.path, cand.path, part.rank, part.result.step_offset, last,
                            outcome.root.has_value(), outcome.renamed)) {
      part.result.incomplete.push_back(
          tools::numbered(MessageId::kNoFacts,
                          "rank " + std::to_string(part.rank) + ": facts could not be compared"));
    }
  }
  part.facts = facts.take();
}

void take_outcome(RankOutcome outcome, bool base_cut, bool cand_cut, RankPart& part) {
  DiffResult& result = part.result;
  result.counts = outcome.counts;
  result.values = outcome.values;
  result.launches = outcome.launches;
  result.steps = outcome.steps - (outcome.steps > 1 && outcome.ends_in_evaluation ? 1 : 0);
  result.waived = outcome.waived;
  result.bits_unknown = outcome.bits_unknown;
  result.allowance = outcome.allowance;
  result.renamed = std::move(outcome.renamed);
  result.summaries = std::move(outcome.summaries);
  result.carried = std::move(outcome.carried);
  result.hidden = outcome.hidden;
  result.one_sided = std::move(outcome.one_sided);
  result.other_forms = std::move(outcome.other_forms);
  result.births = std::move(outcome.births);
  result.ranks = {{part.rank, outcome.values, outcome.root}};
  result.root = std::move(outcome.root);
  result.first_bit_difference = std::move(outcome.first_bit_difference);
  part.aligned = outcome.aligned;
  part.aligned_of_modules = outcome.aligned_of_modules;
  part.base_replica = std::move(outcome.base_replica);
  part.cand_replica = std::move(outcome.cand_replica);
  const bool cut = (base_cut && outcome.uncompared_step == outcome.last_base_step) ||
                   (cand_cut && outcome.uncompared_step == outcome.last_cand_step);
  if (!cut) part.uncompared_step = outcome.uncompared_step;
}

}  // namespace convtrace::diff

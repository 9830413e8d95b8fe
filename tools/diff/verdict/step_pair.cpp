#include "tools/diff/verdict/step_pair.h"

#include <set>
#include <utility>

#include "tools/common/element.h"
#include "tools/diff/verdict/other_forms.h"

namespace convtrace::diff {
namespace {

/// Drops guessed matches (below kLeastConfidence) with different values: a guess proves no fault.
void drop_wrong_guesses(StepPair& pair) {
  std::vector<Comparison>& comparisons = pair.comparisons;
  std::vector<bool> holds(comparisons.size(), true);
  size_t kept = 0;
  for (size_t m = 0; m < comparisons.size(); ++m) {
    holds[m] =
        pair.alignment.matches[m].confidence >= kLeastConfidence || agrees(comparisons[m].verdict);
    if (holds[m]) comparisons[kept++] = comparisons[m];
  }
  if (kept == comparisons.size()) return;
  comparisons.resize(kept);
  drop_matches(pair.alignment, holds);
  pair.lineage = trace_lineage(pair.base, pair.cand, pair.alignment);
}

void excuse_forms(StepPair& pair) {
  excuse_other_forms(pair.base.values, pair.alignment.matches, pair.comparisons);
  excuse_inner_forms(pair.base.values, pair.alignment.matches, pair.comparisons);
  excuse_targets(pair.base.values, pair.alignment.matches, pair.comparisons);
}

/// A consumer that got other bytes than its producer wrote is not the place of the divergence.
/// Values that --ignore covers may change in any way.
void name_changed_between(StepPair& pair) {
  std::erase_if(pair.lineage.changed, [&pair](const ChangedBetween& changed) {
    return pair.comparisons[changed.producer].waived || pair.comparisons[changed.consumer].waived;
  });
  for (const ChangedBetween& changed : pair.lineage.changed)
    pair.comparisons[changed.consumer].verdict = Class::kChangedBetween;
}

/// Treats first weights as equal where the next record of the parameter in the step agrees bit by
/// bit: the program wrote them in between, before or in their first use.
void excuse_filled_later(StepPair& pair) {
  std::set<std::pair<format::StringId, format::StringId>> filled;  // module and slot
  for (size_t m = pair.comparisons.size(); m-- > 0;) {
    const ValueRecord& record = pair.base_of(static_cast<uint32_t>(m));
    if (record.kind != Role::kParameter) continue;
    const std::pair parameter(record.key.scope, record.key.slot);
    Comparison& comparison = pair.comparisons[m];
    if (!comparison.bits_differ && comparison.bits_known) filled.insert(parameter);
    if (!comparison.bits_differ) continue;
    if (is_first_weight(record) && filled.contains(parameter)) comparison = kUnwritten;
    filled.erase(parameter);
  }
}

constexpr void (*kPasses[])(StepPair&) = {drop_wrong_guesses, excuse_forms, name_changed_between,
                                          excuse_filled_later};

SideReport describe_side(const StepRecords& step, const ValueRecord& record) {
  const auto shape = step.shape_of(record);
  return {.stats = record.stats,
          .dtype = record.dtype,
          .capture = record.capture,
          .extent = record.extent,
          .device = record.device,
          .has_shape = record.has_shape,
          .shape = {shape.begin(), shape.end()},
          .samples = tools::decode_elements(record.dtype, step.samples_of(record)),
          .value = record.value,
          .address = record.address,
          .bytes = record.bytes,
          .t_ns = record.t_ns};
}

/// Fills in everything that the key contains; sides and comparison stay empty.
RecordReport describe_key(const format::Definitions& names, uint32_t rank, uint32_t step,
                          const ValueRecord& record) {
  RecordReport report;
  report.rank = rank;
  report.step = step;
  report.phase = record.key.phase;
  report.scope = names.text(record.key.scope);
  report.slot = names.text(record.key.slot);
  report.op = names.text(record.key.op);
  report.kernel = names.text(record.kernel);
  report.call = record.key.call;
  return report;
}

}  // namespace

void settle(StepPair& pair) {
  for (const auto pass : kPasses) pass(pair);
}

RecordReport PairReporter::of_match(const StepPair& pair, uint32_t match) const {
  RecordReport report = describe_key(names_, rank_, pair.base.step, pair.base_of(match));
  // For a renamed kernel of the same family, the candidate's name is the one to search for.
  report.kernel = names_.text(pair.cand_of(match).kernel);
  report.cand_scope = names_.text(pair.cand_of(match).key.scope);
  report.cand_slot = names_.text(pair.cand_of(match).key.slot);
  report.how = pair.alignment.matches[match].how;
  report.confidence = pair.alignment.matches[match].confidence;
  report.comparison = pair.comparisons[match];
  report.base = describe_side(pair.base, pair.base_of(match));
  report.cand = describe_side(pair.cand, pair.cand_of(match));
  return report;
}

RecordReport PairReporter::of_one(const StepRecords& step, uint32_t index, bool in_base) const {
  const ValueRecord& record = step.values[index];
  RecordReport report = describe_key(names_, rank_, step.step, record);
  report.comparison.verdict = Class::kUnmatched;
  (in_base ? report.base : report.cand) = describe_side(step, record);
  return report;
}

RewrittenModule PairReporter::of_ops(const OtherOps& call) const {
  RewrittenModule module{.scope = text(call.scope), .phase = call.phase};
  for (const format::StringId op : call.base) module.base.push_back(text(op));
  for (const format::StringId op : call.cand) module.cand.push_back(text(op));
  return module;
}

}  // namespace convtrace::diff

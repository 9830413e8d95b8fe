#include "tools/diff/verdict/rank_diff.h"

#include <algorithm>
#include <limits>

#include "tools/diff/align/align.h"
#include "tools/diff/align/lineage.h"
#include "tools/diff/verdict/describe.h"
#include "tools/diff/verdict/other_forms.h"

namespace convtrace::diff {
namespace {

/// Values of the same step shown before and after the root.
constexpr uint32_t kAround = 12;

bool is_match(Class verdict) { return agrees(verdict) && verdict != Class::kBitDifference; }

size_t index_of(Class verdict) { return static_cast<size_t>(verdict); }

}  // namespace

/// Both runs' records of one step and everything found out about them.
struct RankDiff::StepPair {
  const StepRecords& base;
  const StepRecords& cand;
  Alignment alignment;
  std::vector<Comparison> comparisons;
  Lineage lineage;

  [[nodiscard]] const ValueRecord& base_of(uint32_t match) const {
    return base.values[alignment.matches[match].base];
  }
  [[nodiscard]] const ValueRecord& cand_of(uint32_t match) const {
    return cand.values[alignment.matches[match].cand];
  }
};

void RankDiff::take_equal_before(uint32_t end) {
  for (; equal_taken_ < equal_.unread().size(); ++equal_taken_) {
    const format::StepSums& step = equal_.unread()[equal_taken_];
    if (step.step >= end) return;
    outcome_.counts[index_of(Class::kIdentical)] += step.values;
    outcome_.values += step.values;
    outcome_.base_values += step.values;
    outcome_.cand_values += step.values;
    outcome_.launches += step.launches;
    ++outcome_.steps;
    matched_in_earlier_steps_ += step.values;
    if (step.values == 0 && !outcome_.uncompared_step) outcome_.uncompared_step = step.step;
    outcome_.last_base_step = outcome_.last_cand_step = step.step;
    births_.take_equal_step();
  }
}

void RankDiff::run(StepStream& base, StepStream& cand,
                   std::span<const std::unique_ptr<StepStream>> noise,
                   const std::function<void()>& after_step) {
  while (true) {
    const StepRecords* a = base.peek();
    const StepRecords* b = cand.peek();
    const bool once = a != nullptr && equal_.is_read_once(a->step);
    if (once && (b == nullptr || b->step > a->step)) b = a;
    take_equal_before(std::min(a != nullptr ? a->step : format::kNoStep,
                               b != nullptr ? b->step : format::kNoStep));
    if (a == nullptr && b == nullptr) break;
    if (a != nullptr && trains(*a)) outcome_.last_base_step = a->step;
    if (b != nullptr && trains(*b)) outcome_.last_cand_step = b->step;
    const bool take_base = a != nullptr && (b == nullptr || a->step <= b->step);
    const bool take_cand = b != nullptr && (a == nullptr || b->step <= a->step);
    if (take_base) outcome_.base_replica.push_back(replica_sums(*a));
    if (take_cand) outcome_.cand_replica.push_back(replica_sums(*b));
    if (!take_cand) {
      one_sided(*a, true);
      base.pop();
    } else if (!take_base) {
      one_sided(*b, false);
      cand.pop();
    } else {
      learn_noise(*a, noise);
      compare_step(*a, *b, !noise.empty());
      base.pop();
      if (!once) cand.pop();
    }
    after_step();
  }
  for (const auto& [cand_scope, pair] : scopes_.renamed()) {
    outcome_.renamed.push_back({std::string(names_.text(pair.base)),
                                std::string(names_.text({cand_scope})), pair.confidence});
  }
}

void RankDiff::learn_noise(const StepRecords& base,
                           std::span<const std::unique_ptr<StepStream>> noise) {
  noise_.begin_step();
  for (const auto& stream : noise) {
    const StepRecords* other = stream->peek();
    while (other != nullptr && other->step < base.step) {
      stream->pop();
      other = stream->peek();
    }
    if (other == nullptr || other->step != base.step) continue;
    for (const Match& match : align(base.values, other->values).matches) {
      noise_.learn(view(base, base.values[match.base]), view(*other, other->values[match.cand]));
    }
  }
}

void RankDiff::compare_step(const StepRecords& base, const StepRecords& cand, bool with_noise) {
  scopes_.learn(base, cand);
  StepPair pair{base, cand, align(base.values, cand.values, scopes_), {}, {}};
  pair.lineage = trace_lineage(base, cand, pair.alignment);
  judge_values(pair, with_noise);
  confirm_guesses(pair);
  excuse_other_forms(base.values, pair.alignment.matches, pair.comparisons);
  for (const ChangedBetween& changed : pair.lineage.changed) {
    pair.comparisons[changed.consumer].verdict = Class::kChangedBetween;
  }
  excuse_unwritten(pair);
  find_root(pair);
  find_first_bit_difference(pair);
  find_carried(pair);
  list_other_forms(pair);
  if (rows_ != nullptr) write_rows(pair);
  count(pair);
}

void RankDiff::judge_values(StepPair& pair, bool with_noise) {
  births_.begin_step(pair.lineage, pair.alignment.matches.size());
  std::optional<size_t> first_update;
  pair.comparisons.reserve(pair.alignment.matches.size());
  for (uint32_t m = 0; m < pair.alignment.matches.size(); ++m) {
    const ValueView a = view(pair.base, pair.base_of(m));
    const ValueView b = view(pair.cand, pair.cand_of(m));
    Comparison& comparison = pair.comparisons.emplace_back(compare(a, b));
    std::optional<NoiseBand> band;
    if (with_noise && comparison.bits_differ) band = noise_.band(a.record.key);
    comparison.waived = comparison.bits_differ && ignored_.of(a.record);
    outcome_.waived += comparison.waived ? 1 : 0;
    if (comparison.field == Field::kRms &&
        unit_roundoff(a.record.dtype) > unit_roundoff(outcome_.coarsest)) {
      outcome_.coarsest = a.record.dtype;
    }
    births_.judge(m, a, b, band ? &*band : nullptr, tolerances_.of(a.record), comparison);
    if (a.record.kind == SlotKind::kGradOutput && comparison.field == Field::kRms) {
      outcome_.largest_gradient_limit =
          std::max(outcome_.largest_gradient_limit, comparison.tolerance);
    }
    const bool counts = comparison.bits_differ && !comparison.waived;
    if (is_update(a.record) && counts && !first_update) first_update = m;
  }
  const auto update = births_.judge_updates();
  if (update && first_update) pair.comparisons[*first_update] = *update;
}

/// Makes equal the values that were read from memory that no op has written: they are arbitrary.
void RankDiff::excuse_unwritten(StepPair& pair) {
  for (size_t m = 0; m < pair.comparisons.size(); ++m) {
    const uint32_t producer = pair.lineage.seen_from[m];
    const bool unwritten = producer != kNoMatch && pair.base_of(producer).unwritten;
    if (unwritten && pair.comparisons[m].bits_differ) pair.comparisons[m] = kUnwritten;
  }
}

/// Drops the matches below kLeastConfidence whose values differ: a guess is no evidence of a fault.
void RankDiff::confirm_guesses(StepPair& pair) const {
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

void RankDiff::one_sided(const StepRecords& step, bool in_base) {
  outcome_.counts[index_of(Class::kUnmatched)] += step.values.size();
  // Steps before the first common one are not missing: the other run was resumed after them.
  if (outcome_.steps > 0 && trains(step)) ++outcome_.skipped_steps[in_base ? 0 : 1];
  if (rows_ == nullptr) return;
  std::vector<uint32_t> all(step.values.size());
  for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  write_unmatched(step, all, in_base);
}

void RankDiff::count(const StepPair& pair) {
  if (outcome_.summaries.size() < kMaxSummaries) {
    outcome_.summaries.push_back(
        summary_of(pair.base, pair.cand, pair.alignment, pair.comparisons));
    outcome_.summaries.back().rank = rank_;
  }
  const Alignment& alignment = pair.alignment;
  for (const Comparison& comparison : pair.comparisons) {
    ++outcome_.counts[index_of(comparison.verdict)];
    if (is_match(comparison.verdict)) ++matched_in_earlier_steps_;
  }
  outcome_.counts[index_of(Class::kUnmatched)] +=
      alignment.base_only.size() + alignment.cand_only.size();
  add_one_sided(pair, static_cast<uint32_t>(pair.base.values.size()),
                static_cast<uint32_t>(pair.cand.values.size()), one_sided_in_earlier_steps_);
  list_one_sided(pair.base, alignment.base_only, false);
  list_one_sided(pair.cand, alignment.cand_only, true);
  outcome_.values += alignment.matches.size();
  const auto same_launches = equal_.same_launches(pair.base.step);
  outcome_.launches +=
      same_launches ? *same_launches : launches_.in_common(pair.base, pair.cand, scopes_);
  outcome_.base_values += pair.base.values.size();
  outcome_.cand_values += pair.cand.values.size();
  ++outcome_.steps;
  if (alignment.matches.empty() && trains(pair.base) && trains(pair.cand) &&
      !outcome_.uncompared_step) {
    outcome_.uncompared_step = pair.base.step;
  }
}

void RankDiff::list_one_sided(const StepRecords& step, std::span<const uint32_t> indices,
                              bool in_cand) {
  for (const uint32_t i : indices) {
    const ValueRecord& record = step.values[i];
    if (ignored_.of(record)) continue;
    RecordKey common = record.key;
    common.call = in_cand ? 1 : 0;
    common.occurrence = 0;
    const uint64_t hash = KeyHash()(common);
    const auto [known, is_new] = one_sided_groups_.try_emplace(hash, outcome_.one_sided.size());
    if (is_new && outcome_.one_sided.size() < kMaxOneSided) {
      outcome_.one_sided.push_back({.rank = rank_,
                                    .in_cand = in_cand,
                                    .phase = record.key.phase,
                                    .scope = std::string(names_.text(record.key.scope)),
                                    .op = std::string(names_.text(record.key.op)),
                                    .kernel = std::string(names_.text(record.key.family)),
                                    .slot = std::string(names_.text(record.key.slot)),
                                    .first_step = step.step});
    }
    if (known->second < outcome_.one_sided.size()) ++outcome_.one_sided[known->second].values;
  }
}

void RankDiff::add_one_sided(const StepPair& pair, uint32_t base_end, uint32_t cand_end,
                             OneSided& one_sided) const {
  const auto& base_only = pair.alignment.base_only;
  const auto& cand_only = pair.alignment.cand_only;
  const auto in_base = std::ranges::lower_bound(base_only, base_end) - base_only.begin();
  const auto in_cand = std::ranges::lower_bound(cand_only, cand_end) - cand_only.begin();
  if (in_base + in_cand > 0 && one_sided.count == 0) {
    // A run that did more did so somewhere in what both did: the smaller index came first.
    one_sided.in_cand = in_base == 0 || (in_cand > 0 && cand_only[0] < base_only[0]);
    const StepRecords& step = one_sided.in_cand ? pair.cand : pair.base;
    const ValueRecord& record = step.values[one_sided.in_cand ? cand_only[0] : base_only[0]];
    one_sided.first = describe_key(names_, rank_, step.step, record);
    one_sided.first.comparison.verdict = Class::kUnmatched;
    (one_sided.in_cand ? one_sided.first.cand : one_sided.first.base) = describe_side(step, record);
  }
  one_sided.count += static_cast<uint64_t>(in_base + in_cand);
}

void RankDiff::find_first_bit_difference(const StepPair& pair) {
  if (outcome_.first_bit_difference) return;
  const auto first = std::ranges::find_if(pair.comparisons, [](const Comparison& c) {
    return c.bits_differ && c.verdict != Class::kOtherForm;
  });
  if (first == pair.comparisons.end()) return;
  const auto match = static_cast<uint32_t>(first - pair.comparisons.begin());
  RootReport report;
  report.record = this->report(pair, match);
  report.position = match;
  report.matched_before = matched_before(pair, match);
  outcome_.first_bit_difference = std::move(report);
}

/// Once a root is found everything is apart, and what explains what no longer matters.
void RankDiff::find_carried(const StepPair& pair) {
  for (uint32_t m = 0; m < pair.comparisons.size() && !outcome_.root; ++m) {
    const Comparison& c = pair.comparisons[m];
    if (c.verdict != Class::kSuspicious) continue;
    Carried& carried = outcome_.carried;
    if (carried.count++ == 0) carried.first = report(pair, m);
    // A gradient in which everything cancels has no size to speak of, nor has what Adam makes of
    // it.
    const ValueRecord& record = pair.base_of(m);
    const bool has_size =
        is_measured(c.field) && record.kind != SlotKind::kGrad && !is_update(record);
    if (has_size) carried.largest = std::max(carried.largest, c.difference);
  }
}

void RankDiff::list_other_forms(const StepPair& pair) {
  for (uint32_t m = 0; m < pair.comparisons.size(); ++m) {
    if (pair.comparisons[m].verdict != Class::kOtherForm) continue;
    add_other_form(outcome_.other_forms, {report(pair, m)});
  }
}

void RankDiff::find_root(const StepPair& pair) {
  for (uint32_t m = 0; m < pair.comparisons.size(); ++m) {
    const Comparison& c = pair.comparisons[m];
    if (!c.born || c.verdict < Class::kDiverged || outcome_.births.size() == kMaxBirths) continue;
    outcome_.births.push_back(report(pair, m));
  }
  const auto choice = choose_root(pair.comparisons, pair.lineage);
  if (!choice || outcome_.root) return;
  outcome_.root = root_report(pair, *choice);
}

RecordReport RankDiff::report(const StepPair& pair, uint32_t match) const {
  RecordReport report = describe_key(names_, rank_, pair.base.step, pair.base_of(match));
  // A renamed kernel of the same family: the candidate's name is the one to look for.
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

/// Whether a value is an input that code in no module made, and not data: what a criterion is given
/// is made of outputs.
bool RankDiff::is_made_between(const StepPair& pair, uint32_t match) {
  const ValueRecord& record = pair.base_of(match);
  if (record.kind != SlotKind::kInput) return false;
  if (record.key.phase != format::Phase::kData) return true;
  if (format::number_class(record.dtype) != format::NumberClass::kFloat) return false;
  for (uint32_t m = 0; m < match; ++m) {
    if (pair.base_of(m).kind == SlotKind::kOutput) return true;
  }
  return false;
}

RootReport RankDiff::root_report(const StepPair& pair, const RootChoice& choice) const {
  RootReport root;
  root.record = report(pair, choice.match);
  root.position = choice.match;
  root.matched_before = matched_before(pair, choice.match);
  const Class worst_input = root.record.comparison.worst_input;
  root.rounding_enlarged = outcome_.carried.count != 0;
  root.one_sided_before = one_sided_in_earlier_steps_;
  const Match& match = pair.alignment.matches[choice.match];
  add_one_sided(pair, match.base, match.cand, root.one_sided_before);
  const ValueRecord& record = pair.base_of(choice.match);
  root.weights_differ = record.kind == SlotKind::kParam && pair.base.step == 0 &&
                        record.key.phase == format::Phase::kForward;
  const uint32_t first = choice.match - std::min(choice.match, kAround);
  const auto count = static_cast<uint32_t>(pair.comparisons.size());
  for (uint32_t m = first; m < std::min(count, choice.match + kAround + 1); ++m) {
    root.around.push_back(report(pair, m));
  }
  root.around_root = choice.match - first;
  root.gradients = worst_gradients(pair);
  if (is_made_between(pair, choice.match) || worst_input == Class::kBitDifference) {
    find_place_between(pair, choice.match, root);
  }
  root.vectors_only =
      record.key.phase == format::Phase::kOptimizer && differs_in_vectors_only(pair);
  if (!choice.changed) return root;

  root.record.comparison = {.verdict = Class::kChangedBetween,
                            .field = Field::kHash,
                            .difference = std::numeric_limits<double>::quiet_NaN(),
                            .tolerance = std::numeric_limits<double>::quiet_NaN(),
                            .bits_differ = true};
  root.changed_in_cand = choice.changed->in_cand;
  root.consumer = report(pair, choice.changed->consumer);
  for (uint32_t m = choice.match + 1; m < count && !root.effect; ++m) {
    const Comparison& c = pair.comparisons[m];
    if (c.verdict >= Class::kDiverged && (is_measured(c.field) || c.field == Field::kNonFinite)) {
      root.effect = report(pair, m);
    }
  }
  return root;
}

/// The input that differed first, of the call that `match` is an output of, or `match` itself: code
/// in no module made it.
void RankDiff::find_place_between(const StepPair& pair, uint32_t match, RootReport& root) const {
  const ValueRecord& found = pair.base_of(match);
  const bool is_input = found.kind == SlotKind::kInput;
  for (uint32_t m = 0; m <= match && !root.came_in; ++m) {
    const ValueRecord& record = pair.base_of(m);
    const Class verdict = pair.comparisons[m].verdict;
    const bool own = record.key.scope == found.key.scope && record.key.call == found.key.call &&
                     record.key.phase == found.key.phase;
    if (record.kind == SlotKind::kOutput && agrees(verdict) && !own) {
      root.agreed_before = report(pair, m);
    } else if (is_input
                   ? m == match
                   : record.kind == SlotKind::kInput && own && verdict == Class::kBitDifference) {
      root.came_in = report(pair, m);
    }
  }
  if (!root.came_in) root.agreed_before.reset();
}

bool RankDiff::differs_in_vectors_only(const StepPair& pair) {
  bool vectors_differ = false, others_agree = false;
  for (uint32_t m = 0; m < pair.comparisons.size(); ++m) {
    const ValueRecord& record = pair.base_of(m);
    if (record.kind != SlotKind::kParam || record.key.phase != format::Phase::kOptimizer) continue;
    const bool agree = agrees(pair.comparisons[m].verdict);
    if (record.dims_count > 1 && !agree) return false;
    vectors_differ |= !agree;
    others_agree |= record.dims_count > 1;
  }
  return vectors_differ && others_agree;
}

std::vector<RecordReport> RankDiff::worst_gradients(const StepPair& pair) const {
  std::vector<uint32_t> worst;
  for (uint32_t m = 0; m < pair.comparisons.size(); ++m) {
    const bool differs = pair.comparisons[m].verdict != Class::kIdentical;
    if (pair.base_of(m).kind == SlotKind::kGrad && differs) worst.push_back(m);
  }
  std::ranges::stable_sort(worst, std::ranges::greater(),
                           [&](uint32_t m) { return pair.comparisons[m].z; });
  worst.resize(std::min(worst.size(), kMaxGradients));
  std::vector<RecordReport> gradients;
  for (const uint32_t m : worst) gradients.push_back(report(pair, m));
  return gradients;
}

uint64_t RankDiff::matched_before(const StepPair& pair, uint32_t match) const {
  const auto here = std::count_if(pair.comparisons.begin(), pair.comparisons.begin() + match,
                                  [](const Comparison& c) { return is_match(c.verdict); });
  return matched_in_earlier_steps_ + static_cast<uint64_t>(here);
}

void RankDiff::write_rows(const StepPair& pair) {
  for (uint32_t m = 0; m < pair.comparisons.size(); ++m) rows_->row(report(pair, m), true, true);
  write_unmatched(pair.base, pair.alignment.base_only, true);
  write_unmatched(pair.cand, pair.alignment.cand_only, false);
}

void RankDiff::write_unmatched(const StepRecords& step, std::span<const uint32_t> indices,
                               bool in_base) {
  for (const uint32_t i : indices) {
    const ValueRecord& record = step.values[i];
    RecordReport report = describe_key(names_, rank_, step.step, record);
    report.comparison.verdict = Class::kUnmatched;
    (in_base ? report.base : report.cand) = describe_side(step, record);
    rows_->row(report, in_base, !in_base);
  }
}

}  // namespace convtrace::diff

#include "tools/diff/verdict/rank_diff.h"

#include <algorithm>

#include "tools/common/text.h"
#include "tools/diff/align/align.h"
#include "tools/diff/align/lineage.h"
#include "tools/diff/align/other_ops.h"
#include "tools/diff/align/passes.h"
#include "tools/diff/compare/dimensions.h"
#include "tools/diff/verdict/arranged.h"
#include "tools/diff/verdict/other_forms.h"

namespace convtrace::diff {
namespace {

bool is_of_forward_pass(format::Phase phase) {
  return phase == format::Phase::kData || phase == format::Phase::kForward ||
         phase == format::Phase::kLoss;
}

size_t index_of(Class verdict) { return static_cast<size_t>(verdict); }

}  // namespace

bool is_evidence(Role role, Class verdict) {
  return role == Role::kInitialBuffer ||
         (role == Role::kNeeded && verdict == Class::kBitDifference);
}

void Allowance::add(const Allowance& other) {
  value = std::max(value, other.value);
  gradient = std::max(gradient, other.gradient);
  parameter = std::max(parameter, other.parameter);
  by_tolerance |= other.by_tolerance;
  averages_only += other.averages_only;
  if (unit_roundoff(other.coarsest) > unit_roundoff(coarsest)) coarsest = other.coarsest;
}

void RankDiff::take_equal_before(uint32_t end) {
  for (; equal_taken_ < equal_.unread().size(); ++equal_taken_) {
    const format::StepSums& step = equal_.unread()[equal_taken_];
    if (step.step >= end) return;
    result_.counts[index_of(Class::kIdentical)] += step.values;
    result_.values += step.values;
    for (Aligned* aligned : {&part_.aligned, &part_.aligned_of_modules})
      aligned->add({step.values, step.values, step.values});
    result_.launches += step.launches;
    ++result_.steps;
    matched_in_earlier_steps_ += step.values;
    if (step.values == 0 && !part_.uncompared_step) part_.uncompared_step = step.step;
    part_.last_base_step = part_.last_cand_step = step.step;
    births_.take_equal_step();
  }
}

void RankDiff::run(StepSource& base, StepSource& cand,
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
    if (a != nullptr && trains(*a)) part_.last_base_step = a->step;
    if (b != nullptr && trains(*b)) part_.last_cand_step = b->step;
    const bool take_base = a != nullptr && (b == nullptr || a->step <= b->step);
    const bool take_cand = b != nullptr && (a == nullptr || b->step <= a->step);
    if (take_base) part_.base_replica.push_back(replica_sums(*a, names_));
    if (take_cand) part_.cand_replica.push_back(replica_sums(*b, names_));
    if (!take_cand) {
      take_unpaired(*a, true);
      base.pop();
    } else if (!take_base) {
      take_unpaired(*b, false);
      cand.pop();
    } else {
      learn_noise(*a, noise);
      compare_step(*a, *b, !noise.empty());
      base.pop();
      if (!once) cand.pop();
    }
    after_step();
  }
  if (result_.root) {
    result_.root->shown = shown_.cause();
    // The order of the data differed in earlier steps, too, without a consequence.
    if (was_arranged_ && result_.root->shown && result_.root->shown->rule == "order")
      result_.root->shown.reset();
    find_loss_factor(*result_.root);
  }
  result_.one_sided = one_sided_.groups();
  result_.waived += one_sided_.waived();
  for (const auto& [cand_scope, pair] : scopes_.renamed()) {
    result_.renamed.push_back({std::string(names_.text(pair.base)),
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
    for (const Match& match : align(base.values, other->values).matches)
      noise_.learn(view(base, base.values[match.base]), view(*other, other->values[match.cand]));
  }
}

void RankDiff::compare_step(const StepRecords& base, const StepRecords& cand, bool with_noise) {
  scopes_.learn(base, cand);
  Alignment alignment = align(base.values, cand.values, scopes_);
  for (const OtherOps& call : part_other_ops(base, cand, scopes_, alignment))
    add_rewritten(result_.rewritten, reporter_.of_ops(call));
  part_passes(base, cand, alignment);
  Lineage lineage = trace_lineage(base, cand, alignment);
  StepPair pair{base, cand, std::move(alignment), std::move(lineage)};
  judge_values(pair, with_noise);
  settle(pair);
  find_root(pair);
  find_offset(pair);
  take_weights(base, true);
  take_weights(cand, false);
  find_first_bit_difference(pair);
  find_carried(pair);
  find_hidden(pair);
  list_other_forms(pair);
  if (rows_ != nullptr) write_rows(pair);
  count(pair);
}

void RankDiff::judge_values(StepPair& pair, bool with_noise) {
  // A noise band explains what it has seen, whatever its reason.
  if (!with_noise && births_.is_open() && may_be_arranged(pair)) {
    const Births births = births_;
    const Allowance allowance = result_.allowance;
    const uint64_t waived = result_.waived;
    judge_values(pair, with_noise, true);
    if (is_arranged(pair, tolerances_, reporter_)) {
      was_arranged_ = true;
      return;
    }
    pair.comparisons.clear();
    births_ = births;
    result_.allowance = allowance;
    result_.waived = waived;
  }
  judge_values(pair, with_noise, false);
}

void RankDiff::judge_values(StepPair& pair, bool with_noise, bool arranged) {
  births_.begin_step(pair.lineage, pair.alignment.matches, arranged);
  births_.take_alone(pair.base, pair.alignment.base_only);
  if (scopes_.renamed().empty()) births_.take_alone(pair.cand, pair.alignment.cand_only);
  pair.comparisons.reserve(pair.alignment.matches.size());
  for (uint32_t m = 0; m < pair.alignment.matches.size(); ++m) {
    const ValueView a = view(pair.base, pair.base_of(m));
    const ValueView b = view(pair.cand, pair.cand_of(m));
    const auto other = dimensions_.empty() ? std::nullopt : turned(dimensions_, names_, a, b);
    // Contents of memory that no op has written are arbitrary.
    const uint32_t producer = pair.lineage.seen_from[m];
    const bool unwritten = producer != kNoMatch && pair.base_of(producer).unwritten;
    pair.comparisons.push_back(
        other ? judge_value(m, other->base(), other->cand(), unwritten, with_noise)
              : judge_value(m, a, b, unwritten, with_noise));
  }
  for (const UpdateFault& fault : births_.judge_updates()) {
    Comparison& comparison = pair.comparisons[fault.match];
    if (comparison.bits_differ && !comparison.waived) comparison = fault.comparison;
  }
}

Comparison RankDiff::judge_value(uint32_t match, const ValueView& base, const ValueView& cand,
                                 bool unwritten, bool with_noise) {
  Comparison comparison = compare(base, cand);
  if (unwritten && comparison.bits_differ) comparison = kUnwritten;
  std::optional<NoiseBand> band;
  if (with_noise && comparison.bits_differ) band = noise_.band(base.record.key);
  comparison.waived = comparison.bits_differ && ignored_.of(base.record);
  result_.waived += comparison.waived ? 1 : 0;
  const NoiseBand* noise = band ? &*band : nullptr;
  const auto by_hand = tolerances_.of(base.record);
  const bool is_measured_float = comparison.field == Field::kRms;
  births_.judge(match, base, cand, noise, by_hand, comparison);
  if (is_measured_float) add_allowed(base, cand, noise, by_hand, comparison);
  return comparison;
}

void RankDiff::add_allowed(const ValueView& base, const ValueView& cand, const NoiseBand* noise,
                           std::optional<double> by_hand, const Comparison& judged) {
  const ValueRecord& record = base.record;
  Allowance allowed{.coarsest = record.dtype};
  allowed.by_tolerance = by_hand.has_value();
  allowed.value = by_hand ? *by_hand : births_.own_rounding(record);
  const bool is_gradient = is_parameter_gradient(record.kind);
  // An average whose terms cancel, and Adam's updates from it, have no meaningful size.
  const bool has_size = !is_gradient && record.kind != Role::kBuffer && !is_update(record);
  if (noise != nullptr && has_size)
    allowed.value = std::max(allowed.value, kNoiseGain * noise->rms);
  // For f64 a difference below the resolution of a sketch cannot be seen.
  allowed.value = std::max(allowed.value, kGain * sketch_floor(base, cand));
  if (record.kind == Role::kGradOutput) allowed.gradient = judged.tolerance;
  if (is_gradient && judged.tolerance < 1) allowed.parameter = judged.tolerance;
  allowed.averages_only =
      judged.verdict <= Class::kSuspicious && is_known_by_averages(base, cand) ? 1 : 0;
  result_.allowance.add(allowed);
}

void RankDiff::take_unpaired(const StepRecords& step, bool in_base) {
  result_.counts[index_of(Class::kUnmatched)] += step.values.size();
  // Steps before the first common one are not missing: the other run was resumed after them.
  if (result_.steps > 0 && trains(step)) ++part_.skipped_steps[in_base ? 0 : 1];
  take_weights(step, in_base);
  if (rows_ == nullptr) return;
  std::vector<uint32_t> all(step.values.size());
  for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  write_unmatched(step, all, in_base);
}

void RankDiff::count(const StepPair& pair) {
  if (result_.summaries.size() < kMaxSummaries) {
    result_.summaries.push_back(summary_of(pair.base, pair.cand, pair.alignment, pair.comparisons));
    result_.summaries.back().rank = reporter_.rank();
    result_.summaries.back().base_updates = births_.moved()[0];
    result_.summaries.back().cand_updates = births_.moved()[1];
  }
  const Alignment& alignment = pair.alignment;
  for (uint32_t m = 0; m < pair.comparisons.size(); ++m) {
    const Comparison& comparison = pair.comparisons[m];
    const Role kind = pair.base_of(m).kind;
    const bool is_hash = comparison.verdict == Class::kBitDifference;
    if (is_evidence(kind, comparison.verdict)) continue;
    ++result_.values;
    ++result_.counts[index_of(comparison.verdict)];
    result_.bits_unknown += comparison.bits_known ? 0 : 1;
    const bool is_unknown = is_hash && !comparison.bits_known;
    if (is_unknown && kind != Role::kInput) ++part_.hashes_of_pieces;
    if (is_match(comparison.verdict)) ++matched_in_earlier_steps_;
  }
  result_.counts[index_of(Class::kUnmatched)] +=
      alignment.base_only.size() + alignment.cand_only.size();
  one_sided_.add(pair);
  const auto same_launches = equal_.same_launches(pair.base.step);
  result_.launches +=
      same_launches ? *same_launches : launches_.in_common(pair.base, pair.cand, scopes_);
  const auto counts = [&](bool modules_alone) {
    const auto counted = [&](const ValueRecord& one) {
      return !is_parted(one, alignment.parted) && !(modules_alone && one.key.op);
    };
    const auto count_in = [&](const std::vector<ValueRecord>& values) {
      return static_cast<uint64_t>(std::ranges::count_if(values, counted));
    };
    const auto matched = std::ranges::count_if(
        alignment.matches, [&](const Match& one) { return counted(pair.base.values[one.base]); });
    return Aligned{static_cast<uint64_t>(matched), count_in(pair.base.values),
                   count_in(pair.cand.values)};
  };
  part_.aligned.add(counts(false));
  part_.aligned_of_modules.add(counts(true));
  ++result_.steps;
  part_.ends_in_evaluation = !trains(pair.base) && !trains(pair.cand);
  if (alignment.matches.empty() && trains(pair.base) && trains(pair.cand) &&
      !part_.uncompared_step) {
    part_.uncompared_step = pair.base.step;
  }
}

void RankDiff::find_first_bit_difference(const StepPair& pair) {
  if (result_.first_bit_difference) return;
  uint32_t match = 0;
  for (; match < pair.comparisons.size(); ++match) {
    const Comparison& c = pair.comparisons[match];
    if (c.bits_differ && c.bits_known && !c.waived && c.verdict != Class::kOtherForm &&
        !is_evidence(pair.base_of(match).kind, c.verdict))
      break;
  }
  if (match == pair.comparisons.size()) return;
  RootReport report;
  report.record = reporter_.of_match(pair, match);
  report.position = match;
  report.matched_before = matched_before(pair, match);
  result_.first_bit_difference = std::move(report);
}

/// Stops at a root: after it all values differ, and rounding does not explain that.
void RankDiff::find_carried(const StepPair& pair) {
  for (uint32_t m = 0; m < pair.comparisons.size() && !result_.root; ++m) {
    const Comparison& c = pair.comparisons[m];
    if (c.verdict != Class::kSuspicious) continue;
    Carried& carried = result_.carried;
    if (carried.count++ == 0) carried.first = reporter_.of_match(pair, m);
    // A gradient or an average whose terms cancel has no meaningful size, and neither have Adam's
    // updates from it.
    const ValueRecord& record = pair.base_of(m);
    const bool has_size = is_measured(c.field) && !is_parameter_gradient(record.kind) &&
                          record.kind != Role::kBuffer && !is_update(record) &&
                          !is_scalar_result(record);
    if (!has_size) continue;
    carried.largest = std::max(carried.largest, c.difference);
    if (is_of_forward_pass(record.key.phase))
      carried.largest_forward = std::max(carried.largest_forward, c.difference);
  }
}

/// Does nothing if --tol contributed: the user allows these differences. Counts only carried
/// differences, since a type's own rounding and --noise have not grown.
void RankDiff::find_hidden(const StepPair& pair) {
  if (result_.hidden || result_.root || result_.allowance.by_tolerance) return;
  const Carried& carried = result_.carried;
  const bool from_first = result_.steps == 0 && hides_all(carried.largest_forward);
  // Programs of bf16 that differ by rounding alone drift to 13 % in the forward pass after some
  // steps, and to 39 % in gradients, where kinks give some elements another sign (measured).
  constexpr double kOfValues = 0.25, kOfGradients = 0.5;
  // Where calls have no partners, gradients are held against nothing but those of the step before.
  constexpr double kOfSums = 0.125;
  const bool alone =
      pair.alignment.parted == Parted::kCalls && result_.allowance.parameter >= kOfSums;
  if (!from_first && !alone && carried.largest_forward < kOfValues &&
      carried.largest < kOfGradients)
    return;
  result_.hidden = {pair.base.step, result_.steps, from_first};
}

void RankDiff::list_other_forms(const StepPair& pair) {
  for (uint32_t m = 0; m < pair.comparisons.size(); ++m) {
    if (pair.comparisons[m].verdict != Class::kOtherForm) continue;
    add_other_form(result_.other_forms, {reporter_.of_match(pair, m)});
  }
}

void RankDiff::find_root(const StepPair& pair) {
  for (uint32_t m = 0; m < pair.comparisons.size(); ++m) {
    const Comparison& c = pair.comparisons[m];
    if (!c.born || c.verdict < Class::kDiverged || result_.births.size() == kMaxBirths) continue;
    result_.births.push_back(reporter_.of_match(pair, m));
  }
  if (result_.root) return;
  result_.root = new_root(pair);
  if (!result_.root) return;
  if (result_.steps == 0) {
    auto weights = FirstWeights::explain(pair, last_weights_, *result_.root, reporter_);
    if (weights) {
      result_.root = std::move(weights);
      return;
    }
  }
  RootReport& root = *result_.root;
  root.matched_before = matched_before(pair, static_cast<uint32_t>(root.position));
  root.matched_in_earlier_steps = matched_in_earlier_steps_;
  root.weights_differ &= result_.steps == 0;
  root.rounding_enlarged = result_.carried.count != 0;
  // A value of one run alone that is the root is not before itself.
  const bool is_alone = !root.has_values();
  if (root.leads_on())
    shown_.begin(pair.base, pair.cand, pair.alignment.matches,
                 pair.alignment.matches[root.position],
                 root.record.slot + " of " + tools::module_text(root.record.scope));
  if (root.position < is_alone) return;
  root.one_sided_before =
      one_sided_.before(pair, pair.alignment.matches[root.position - (is_alone ? 1 : 0)]);
}

/// They are held for a root.
void RankDiff::take_weights(const StepRecords& step, bool in_base) {
  shown_.take(step, in_base);
  if (!result_.root) last_weights_.take(step, in_base);
}

void RankDiff::find_offset(const StepPair& pair) {
  const bool is_open = result_.root && result_.root->weights_differ && !result_.root->offset;
  if (is_open) result_.root->offset = first_weights_.offset_at(pair.base, pair.cand);
}

std::optional<RootReport> RankDiff::new_root(const StepPair& pair) {
  const auto choice = choose_root(pair);
  std::optional<RootReport> root;
  if (choice && same_structure_)
    root = report_other_parameters(pair, last_weights_, ignored_, reporter_);
  if (!root && all_gradients_) {
    // A step that is not read is equal in both runs.
    if (equal_taken_ > 0 || !(last_weights_.moves_unseen(pair.base, true) ||
                              last_weights_.moves_unseen(pair.cand, false)))
      root = report_lost_gradient(pair, choice, ignored_, reporter_);
    if (!root && same_structure_) root = report_clipping(pair, choice, ignored_, reporter_);
  }
  if (!choice || root) return root;
  // A step before with as many passes has agreed: then their numbers explain nothing.
  const bool agreed = std::ranges::any_of(result_.summaries, [&](const StepSummary& one) {
    return one.base_passes == pair.alignment.base_passes &&
           one.cand_passes == pair.alignment.cand_passes;
  });
  if (same_structure_ && !agreed) root = report_more_passes(pair, *choice, ignored_, reporter_);
  if (same_structure_ && !root) root = report_more_calls(pair, *choice, ignored_, reporter_);
  if (root) return root;
  root = report_root(pair, *choice, reporter_);
  if (!choice->changed) look_at_weights(pair, choice->match, *root);
  return root;
}

/// If the root is a module's output, compares the module's weights. The root becomes a parameter
/// that the program wrote itself, if one explains it.
void RankDiff::look_at_weights(const StepPair& pair, uint32_t match, RootReport& root) const {
  const Comparison& found = pair.comparisons[match];
  const ValueRecord& output = pair.base_of(match);
  const bool is_result = output.kind == Role::kOutput && !output.key.op && !output.key.family;
  if (!is_result) return;
  // Under another name the parameters have no counterparts here.
  if (output.key.scope == pair.cand_of(match).key.scope)
    root.weights = written_.shown(pair.base, pair.cand, output, pair.cand_of(match));
  if (!is_measured(found.field) || !agrees(found.worst_input)) return;
  const auto weight =
      written_.behind(pair.base, pair.cand, output, pair.cand_of(match), found.difference);
  if (!weight) return;
  RootReport blamed;
  blamed.record = reporter_.of_one(weight->base, 0, true);
  blamed.record.cand = reporter_.of_one(weight->cand, 0, false).cand;
  blamed.record.phase = root.record.phase;
  blamed.record.call = root.record.call;
  blamed.record.cand_scope = blamed.record.scope;
  blamed.record.cand_slot = blamed.record.slot;
  blamed.record.how = root.record.how;
  blamed.record.confidence = root.record.confidence;
  blamed.record.comparison = weight->comparison;
  blamed.position = root.position;
  blamed.before = root.before;
  blamed.gradients = std::move(root.gradients);
  blamed.written = weight->when;
  root = std::move(blamed);
}

uint64_t RankDiff::matched_before(const StepPair& pair, uint32_t match) const {
  const auto here = std::count_if(pair.comparisons.begin(), pair.comparisons.begin() + match,
                                  [](const Comparison& c) { return is_match(c.verdict); });
  return matched_in_earlier_steps_ + static_cast<uint64_t>(here);
}

void RankDiff::write_rows(const StepPair& pair) {
  for (uint32_t m = 0; m < pair.comparisons.size(); ++m)
    rows_->row(reporter_.of_match(pair, m), true, true);
  write_unmatched(pair.base, pair.alignment.base_only, true);
  write_unmatched(pair.cand, pair.alignment.cand_only, false);
}

void RankDiff::write_unmatched(const StepRecords& step, std::span<const uint32_t> indices,
                               bool in_base) {
  for (const uint32_t i : indices)
    rows_->row(reporter_.of_one(step, i, in_base), in_base, !in_base);
}

}  // namespace convtrace::diff

#include "tools/diff/ranks/joined.h"

#include <algorithm>
#include <tuple>

#include "tools/common/complaints.h"
#include "tools/common/text.h"
#include "tools/diff/cause/finding_stories.h"
#include "tools/diff/cause/rules.h"
#include "tools/diff/facts/preflight.h"
#include "tools/diff/ranks/diff.h"
#include "tools/diff/verdict/other_forms.h"

namespace convtrace::diff {
namespace {

using tools::MessageId;

void add_carried(Carried& all, Carried carried) {
  all.count += carried.count;
  all.largest = std::max(all.largest, carried.largest);
  all.largest_forward = std::max(all.largest_forward, carried.largest_forward);
  const auto step = [](const Carried& one) { return one.first->step; };
  if (carried.first && (!all.first || step(carried) < step(all)))
    all.first = std::move(carried.first);
}

void add_unread(std::vector<Unread>& all, const Unread& one) {
  auto known = std::ranges::find(all, one.reason, &Unread::reason);
  if (known == all.end()) known = all.insert(known, {.reason = one.reason});
  known->base += one.base;
  known->cand += one.cand;
}

bool is_received(const RootReport& root) { return role_of(root.record.slot) == Role::kReceived; }

/// Keeps the earlier of two roots. In one step a value that a collective delivered comes last,
/// since its difference usually began on another rank.
void keep_earlier(std::optional<RootReport>& first, std::optional<RootReport> other) {
  const auto order = [](const RootReport& root) {
    return std::tuple(root.record.step, is_received(root), root.position, root.record.rank);
  };
  if (other && (!first || order(*other) < order(*first))) first = std::move(other);
}

/// @return whether the root is made of values that rounding carried as far apart as they are large.
/// In other tensors of the step the difference may be small.
bool is_root_hidden(const DiffResult& result) {
  const RootReport& root = *result.root;
  return result.hidden && result.hidden->from_first && result.hidden->step <= root.record.step &&
         root.setting.empty() && root.only_in.empty() &&
         root.record.comparison.worst_input == Class::kSuspicious &&
         hides_all(root.record.comparison.source);
}

format::Phase phase_of(const FactDifference& fact) {
  return fact.kind == FactKind::kOptimizer ? format::Phase::kOptimizer : format::Phase::kForward;
}

/// @return whether the runs diverged before the setting was first used. In the same step the value
/// is preferred as the root, because it has a place.
bool parted_before(const RootReport& root, const FactDifference& fact) {
  return root.record.step <= fact.step;
}

/// Another class may compute the same, and a flag of a module shows in its values or is of how they
/// are computed. Of numbers, values may be too near to each other to show anything.
bool may_compute_the_same(const FactDifference& fact) {
  const auto is_flag = [](const std::optional<std::string>& value) {
    return value == "True" || value == "False";
  };
  return fact.name == "class" ||
         (fact.kind == FactKind::kModule && is_flag(fact.base) && is_flag(fact.cand));
}

/// A setting that differs is certain as a root, while values with rounding only hint at it or do
/// not show it.
/// @return the first setting of a module or an optimizer that differs, if some value differs too
/// and none diverges before the setting is used.
std::optional<RootReport> setting_root(const DiffResult& result) {
  const bool has_other_buffers = std::ranges::any_of(
      result.one_sided,
      [](const OneSidedGroup& group) { return group.slot.starts_with("buffer:"); });
  const auto is_setting = [&](const FactDifference& fact) {
    if (!fact.configuration) return false;
    if (!may_compute_the_same(fact)) return true;
    return has_other_buffers || (result.root && result.root->record.step == fact.step);
  };
  const auto settings = std::ranges::find_if(result.facts, is_setting);
  if (settings == result.facts.end() || !result.first_bit_difference) return std::nullopt;
  const FactDifference* first = &*settings;
  for (const FactDifference& fact : result.facts) {
    if (is_setting(fact) && fact.step < first->step) first = &fact;
  }
  if (result.root && parted_before(*result.root, *first)) return std::nullopt;
  RootReport root;
  root.record.rank = first->rank;
  root.record.step = first->step;
  root.record.phase = phase_of(*first);
  if (first->kind == FactKind::kModule) root.record.scope = first->first;
  root.in_no_module = first->kind == FactKind::kOptimizer;
  root.record.cand_scope = root.record.scope;
  root.record.slot = root.record.cand_slot = first->name;
  root.record.comparison = decided(Class::kDiverged, Field::kNone);
  root.setting = fact_text(*first);
  return root;
}

}  // namespace

void add_findings(Findings& all, const Findings& more, std::optional<uint32_t> rank) {
  all.count += more.count;
  all.errors += more.errors;
  for (const FindingReport& finding : more.list) {
    if (all.list.size() >= kMaxFindings) break;
    all.list.push_back(finding);
    if (rank) all.list.back().rank = *rank;
  }
}

void Joined::add(RankPart part) {
  DiffResult& one = part.result;
  add_counts(part);
  add_lists(one);
  // If any of several ranks may round, that one's reason is reported.
  if (result_.why_exact.empty() || !one.exact) {
    result_.exact = one.exact;
    result_.why_exact = one.why_exact;
  }
  if (pairs_.size() > 1 && !one.wholes) {
    add_replicas(base_replicas_.add(part.rank, std::move(part.base_replica)), false);
    add_replicas(cand_replicas_.add(part.rank, std::move(part.cand_replica)), true);
  }
  add_findings(result_.base_findings, one.base_findings);
  add_findings(result_.cand_findings, one.cand_findings);
  facts_.add(std::move(part.facts));
  result_.step_offset = one.step_offset;
  if (one.wholes) result_.wholes = std::move(one.wholes);
  add_carried(result_.carried, std::move(one.carried));
  keep_earlier(result_.root, std::move(one.root));
  keep_earlier(result_.first_bit_difference, std::move(one.first_bit_difference));
}

void Joined::add_counts(const RankPart& part) {
  const DiffResult& one = part.result;
  for (size_t i = 0; i < kClassCount; ++i) result_.counts[i] += one.counts[i];
  result_.values += one.values;
  result_.launches += one.launches;
  result_.steps += one.steps;
  result_.waived += one.waived;
  result_.by_sums += one.by_sums;
  result_.bits_unknown += one.bits_unknown;
  result_.bits_known &= one.bits_known;
  result_.allowance.add(one.allowance);
  if (one.hidden) {
    Hidden& all = result_.hidden ? *result_.hidden : result_.hidden.emplace(*one.hidden);
    if (one.hidden->step < all.step)
      std::tie(all.step, all.judged) = std::tie(one.hidden->step, one.hidden->judged);
    all.from_first |= one.hidden->from_first;
  }
  aligned_.add(part.aligned);
  aligned_of_modules_.add(part.aligned_of_modules);
  if (!uncompared_step_) uncompared_step_ = part.uncompared_step;
}

void Joined::add_lists(DiffResult& one) {
  const auto append = [](auto& all, auto& more, size_t most) {
    for (auto& each : more)
      if (all.size() < most) all.push_back(std::move(each));
  };
  for (PreflightEntry& entry : one.preflight) add_entry(result_.preflight, std::move(entry));
  append(result_.incomplete, one.incomplete, SIZE_MAX);
  append(result_.alias_patterns, one.alias_patterns, kMaxAliasDifferences);
  append(result_.summaries, one.summaries, SIZE_MAX);
  append(result_.one_sided, one.one_sided, kMaxOneSided);
  append(result_.births, one.births, SIZE_MAX);
  append(result_.ranks, one.ranks, SIZE_MAX);
  for (const Unread& unread : one.unread) add_unread(result_.unread, unread);
  for (OtherForm& form : one.other_forms) add_other_form(result_.other_forms, std::move(form));
  for (RewrittenModule& module : one.rewritten) add_rewritten(result_.rewritten, std::move(module));
  for (RenamedModule& module : one.renamed) {
    const auto known = std::ranges::find(result_.renamed, module);
    if (known == result_.renamed.end()) result_.renamed.push_back(std::move(module));
  }
}

void Joined::add_replicas(std::vector<ReplicaParting> partings, bool in_cand) {
  for (ReplicaParting& parting : partings) {
    parting.in_cand = in_cand;
    result_.replicas.push_back(parting);
  }
}

/// Ranks whose root a collective brought, and whose births it explains.
void Joined::mark_receivers() {
  if (!result_.root || is_received(*result_.root)) return;
  for (RankReport& rank : result_.ranks) {
    rank.received = rank.root && is_received(*rank.root);
    if (!rank.received) continue;
    std::erase_if(result_.births,
                  [&rank](const RecordReport& birth) { return birth.rank == rank.rank; });
  }
}

std::string Joined::why_not_comparable() const {
  using tools::numbered;
  const auto nothing = [](std::string_view text) {
    return numbered(MessageId::kNothingInCommon, text);
  };
  if (result_.ranks.empty()) return nothing("the runs have no rank in common");
  if (result_.steps == 0) return nothing("the runs have no step in common");
  if (result_.values == 0) return nothing("no value could be compared (no statistics in common)");
  if (!result_.bits_known &&
      result_.counts[static_cast<size_t>(Class::kBitDifference)] == result_.values) {
    return numbered(MessageId::kTwoHashes,
                    "of all values only hashes are known, of versions 1 and 2");
  }
  const auto is_little = [](const Aligned& values) {
    const auto smaller = static_cast<double>(std::min(values.base, values.cand));
    return static_cast<double>(values.matched) < kLeastAligned * smaller;
  };
  const bool have_modules = aligned_of_modules_.base > 0 && aligned_of_modules_.cand > 0;
  const Aligned& values = have_modules ? aligned_of_modules_ : aligned_;
  if (is_little(values) && is_little(aligned_)) {
    return numbered(MessageId::kLittleInCommon,
                    "too little is alike: only " + tools::count_text(values.matched) + " of " +
                        tools::count_text(values.base) + " and " + tools::count_text(values.cand) +
                        " values have a partner");
  }
  if (uncompared_step_ && !result_.root)
    return nothing("no value could be compared in step " + std::to_string(*uncompared_step_));
  return "";
}

const format::TraceMeta& Joined::meta_of(uint32_t rank, bool in_cand) const {
  const TraceSet& run = in_cand ? cand_ : base_;
  const auto pair = std::ranges::find(pairs_, rank, &RankPair::rank);
  const int file = pair == pairs_.end() ? 0 : in_cand ? pair->cand : pair->base;
  return run.files[static_cast<size_t>(std::max(file, 0))].meta;  // parts may be of anybody
}

void Joined::find_cause() {
  result_.cause = probable_cause(result_);
  if (!result_.cause || !result_.cause->finding) return;
  FindingCause& found = *result_.cause->finding;
  name_frames(found.finding, [&](uint32_t rank) -> const format::TraceMeta& {
    return meta_of(rank, found.in_cand);
  });
}

bool Joined::has_entry(std::string_view name) const {
  return std::ranges::find(result_.preflight, name, &PreflightEntry::name) !=
         result_.preflight.end();
}

void Joined::decide(bool allow_incomplete) {
  number_stories(result_.base_findings);
  number_stories(result_.cand_findings);
  result_.facts = facts_.differences();
  // A layer that is divided among ranks has another class and other sizes.
  for (FactDifference& fact : result_.facts)
    fact.configuration &= !(result_.wholes && fact.kind == FactKind::kModule);
  if (auto setting = setting_root(result_)) result_.root = std::move(setting);
  for (std::optional<RootReport>* root : {&result_.root, &result_.first_bit_difference}) {
    if (!*root || (*root)->in_no_module) continue;
    const RecordReport& record = (*root)->record;
    (*root)->code = facts_.place_of(record.scope, record.op);
    if ((*root)->came_in) (*root)->caller = facts_.caller_of(record.scope);
    if (record.phase != format::Phase::kLoss || record.call != 0) (*root)->code.backward.clear();
    // A backward pass of the program's own, or of another version, may write in place itself.
    const CodePlace made_in = (*root)->known_as.empty()
                                  ? (*root)->code
                                  : facts_.place_of((*root)->known_in, std::string());
    if (!made_in.qualified_class.starts_with("torch.") || has_entry("version.torch"))
      (*root)->more_writes = 0;
    auto& calls = (*root)->region.calls;
    if (calls.empty() && (*root)->has_values()) {
      for (auto& [scope, op] : facts_.dropped_views())
        calls.push_back({.scope = std::move(scope), .op = std::move(op)});
    }
    for (RegionCall& call : calls) {
      const GeneratedCall made = facts_.place_of(call.scope, call.op).generated;
      call.kernel = made.kernel;
      call.unchanged |= made.drops_view;
      if ((*root)->region.name.empty()) (*root)->region.name = made.region;
    }
  }
  mark_receivers();
  std::ranges::sort(result_.renamed, {}, &RenamedModule::base);
  std::ranges::stable_sort(result_.births, {}, &RecordReport::step);
  if (result_.births.size() > kMaxBirths) result_.births.resize(kMaxBirths);
  result_.why_not_comparable = why_not_comparable();
  if (!result_.why_not_comparable.empty()) {
    result_.verdict = Verdict::kNotComparable;
    result_.root.reset();
  } else if (result_.root && !is_root_hidden(result_)) {
    result_.verdict = Verdict::kDiverged;
    find_cause();
  } else if (result_.hidden) {
    result_.verdict = Verdict::kCannotTell;
    result_.root.reset();
  } else if (!result_.incomplete.empty() && !allow_incomplete) {
    result_.verdict = Verdict::kIncomplete;
  } else if (result_.base_findings.errors + result_.cand_findings.errors != 0) {
    result_.verdict = Verdict::kFindings;
    for (const bool in_cand : {false, true})
      name_frames(in_cand ? result_.cand_findings : result_.base_findings,
                  [this, in_cand](uint32_t rank) -> const format::TraceMeta& {
                    return meta_of(rank, in_cand);
                  });
  }
}

}  // namespace convtrace::diff

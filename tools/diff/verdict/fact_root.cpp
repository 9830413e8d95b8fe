#include "tools/diff/verdict/fact_root.h"

#include <algorithm>

namespace convtrace::diff {
namespace {

format::Phase phase_of(const FactDifference& fact) {
  return fact.kind == FactKind::kOptimizer ? format::Phase::kOptimizer : format::Phase::kForward;
}

/// Whether the runs diverged before the setting was first used. In the same step the value is
/// preferred as the root, because it has a place.
bool parted_before(const RootReport& root, const FactDifference& fact) {
  return root.record.step <= fact.step;
}

}  // namespace

std::optional<RootReport> setting_root(const DiffResult& result) {
  const auto is_setting = [](const FactDifference& fact) { return fact.configuration; };
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

}  // namespace convtrace::diff

#include "tools/diff/verdict/root.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <tuple>
#include <unordered_set>

#include "tools/common/text.h"
#include "tools/diff/births/births.h"
#include "tools/diff/births/updates.h"
#include "tools/diff/verdict/data_flow.h"
#include "tools/diff/verdict/root_region.h"

namespace convtrace::diff {
namespace {

/// Values of the same step shown before and after the root.
constexpr uint32_t kAround = 12;

/// Whether a value is an input that code outside of modules has made, and no data: inputs of a
/// criterion are made of outputs.
bool is_made_between(const StepPair& pair, uint32_t match) {
  const ValueRecord& record = pair.base_of(match);
  if (record.kind != SlotKind::kInput) return false;
  if (record.key.phase != format::Phase::kData) return true;
  if (format::number_class(record.dtype) != format::NumberClass::kFloat) return false;
  for (uint32_t m = 0; m < match; ++m) {
    if (pair.base_of(m).kind == SlotKind::kOutput) return true;
  }
  return false;
}

/// Finds the first differing input of the call that `match` belongs to, which may be `match`
/// itself: code outside of modules made it.
void find_place_between(const StepPair& pair, uint32_t match, const PairReporter& reporter,
                        RootReport& root) {
  const ValueRecord& found = pair.base_of(match);
  const bool is_input = found.kind == SlotKind::kInput;
  for (uint32_t m = 0; m <= match && !root.came_in; ++m) {
    const ValueRecord& record = pair.base_of(m);
    const Class verdict = pair.comparisons[m].verdict;
    const bool own = record.key.scope == found.key.scope && record.key.call == found.key.call &&
                     record.key.phase == found.key.phase;
    if (record.kind == SlotKind::kOutput && agrees(verdict) && !own) {
      root.agreed_before = reporter.of_match(pair, m);
    } else if (is_input
                   ? m == match
                   : record.kind == SlotKind::kInput && own && verdict == Class::kBitDifference) {
      root.came_in = reporter.of_match(pair, m);
    }
  }
  if (!root.came_in) root.agreed_before.reset();
}

bool differs_in_vectors_only(const StepPair& pair) {
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

/// None where a rank of each run stands out: nothing says which.
std::optional<Holder> holder_of(const StepPair& pair, uint32_t match) {
  const Comparison& comparison = pair.comparisons[match];
  const bool has_size = !std::isnan(comparison.tolerance);
  const double limit =
      has_size ? kElementGain * comparison.tolerance : std::numeric_limits<double>::max();
  const auto stands_out = [limit](const OddRank& odd) {
    return odd.by > limit && !(odd.next > limit);
  };
  const OddRank &base = pair.base_of(match).odd, &cand = pair.cand_of(match).odd;
  if (stands_out(base) == stands_out(cand)) return std::nullopt;
  return stands_out(cand) ? Holder{true, cand.rank} : Holder{false, base.rank};
}

UpdateCount count_updates(const StepPair& pair) {
  UpdateCount count;
  for (uint32_t m = 0; m < pair.size(); ++m) {
    if (!is_update(pair.base_of(m))) continue;
    ++count.all;
    count.wrong += pair.comparisons[m].born && pair.comparisons[m].verdict >= Class::kDiverged;
  }
  return count;
}

std::vector<RecordReport> worst_gradients(const StepPair& pair, const PairReporter& reporter) {
  std::vector<uint32_t> worst;
  for (uint32_t m = 0; m < pair.comparisons.size(); ++m) {
    const bool differs = pair.comparisons[m].verdict != Class::kIdentical;
    if (pair.base_of(m).kind == SlotKind::kGrad && differs) worst.push_back(m);
  }
  std::ranges::stable_sort(worst, std::ranges::greater(),
                           [&](uint32_t m) { return pair.comparisons[m].z; });
  worst.resize(std::min(worst.size(), kMaxGradients));
  std::vector<RecordReport> gradients;
  for (const uint32_t m : worst) gradients.push_back(reporter.of_match(pair, m));
  return gradients;
}

/// Scopes of the modules that both runs called, by their names in one run.
std::unordered_set<uint32_t> called_in_both(const StepPair& pair, bool in_base) {
  std::unordered_set<uint32_t> scopes;
  for (uint32_t m = 0; m < pair.size(); ++m) {
    const ValueRecord& record = in_base ? pair.base_of(m) : pair.cand_of(m);
    if (record.kind == SlotKind::kOutput) scopes.insert(record.key.scope.value);
  }
  return scopes;
}

/// In a step of one run: the first gradient that was clipped, and the common factor.
struct Clipping {
  std::optional<uint32_t> first;
  double factor = 1;
};

Clipping clipping_of(const StepRecords& step, Tolerances& ignored) {
  Clipping clipping;
  double before = 0, after = 0;
  std::unordered_set<uint64_t> clipped;
  for (uint32_t i = 0; i < step.values.size(); ++i) {
    const ValueRecord& record = step.values[i];
    if (record.kind != SlotKind::kGrad || ignored.of(record)) continue;
    const double square = record.stats.l2 * record.stats.l2;
    if (record.unclipped) {
      if (!clipping.first) clipping.first = i;
      clipped.insert(parameter_key(record));
      before += square;
    } else if (clipped.contains(parameter_key(record))) {
      after += square;
    }
  }
  if (before > 0) clipping.factor = std::sqrt(after / before);
  return clipping;
}

/// Whether the known root comes before this value.
bool is_behind(const StepPair& pair, const std::optional<RootChoice>& known, bool in_base,
               uint32_t index) {
  if (!known) return false;
  const Match& match = pair.alignment.matches[known->match];
  return (in_base ? match.base : match.cand) < index;
}

RootReport one_sided_root(const StepPair& pair, bool in_base, uint32_t index,
                          const PairReporter& reporter) {
  RootReport root;
  root.record = reporter.of_one(in_base ? pair.base : pair.cand, index, in_base);
  root.record.comparison = decided(Class::kDiverged, Field::kNone);
  root.record.cand_scope = root.record.scope;
  root.record.cand_slot = root.record.slot;
  root.position = index;
  return root;
}

/// @return the first index of a lost gradient among `indices`, which are ascending.
std::optional<uint32_t> first_lost(const StepPair& pair, std::span<const uint32_t> indices,
                                   bool in_base, Tolerances& ignored) {
  const auto& values = in_base ? pair.base.values : pair.cand.values;
  const auto called = called_in_both(pair, in_base);
  const auto lost = std::ranges::find_if(indices, [&](uint32_t i) {
    const ValueRecord& record = values[i];
    return record.kind == SlotKind::kGrad && !record.unclipped && record.stats.l2 > 0 &&
           called.contains(record.key.scope.value) && !ignored.of(record);
  });
  return lost == indices.end() ? std::nullopt : std::optional(*lost);
}

/// @return the buffers of `match`'s own module that began with other bits.
std::vector<std::string> initial_buffers(const StepPair& pair, uint32_t match,
                                         const PairReporter& reporter) {
  std::vector<std::string> names;
  for (uint32_t m = 0; m < pair.size(); ++m) {
    const ValueRecord& record = pair.base_of(m);
    if (record.kind == SlotKind::kInitialBuffer && pair.comparisons[m].bits_differ &&
        record.key.scope == pair.base_of(match).key.scope)
      names.push_back(reporter.text(record.tensor));
  }
  return names;
}

/// @return the first differing input of `match`'s own call; `match` itself if it is an input.
std::optional<uint32_t> own_input(const StepPair& pair, uint32_t match) {
  const RecordKey& own = pair.base_of(match).key;
  for (uint32_t m = 0; m <= match; ++m) {
    const ValueRecord& record = pair.base_of(m);
    if (record.kind == SlotKind::kInput && pair.comparisons[m].bits_differ &&
        record.key.scope == own.scope && record.key.call == own.call)
      return m;
  }
  return std::nullopt;
}

/// @param alone  indices of the `values` that only one run has.
std::string calls_text(std::span<const ValueRecord> values, std::span<const uint32_t> alone,
                       const RecordKey& key, const std::string& scope, bool in_base) {
  const auto is_call = [&key](const ValueRecord& one) {
    return std::tie(one.key.scope, one.key.slot, one.key.phase, one.key.op) ==
           std::tie(key.scope, key.slot, key.phase, key.op);
  };
  const auto calls = std::ranges::count_if(values, is_call);
  const auto more = std::ranges::count_if(alone, [&](uint32_t i) { return is_call(values[i]); });
  const auto times = [&](bool here) {
    return tools::counted(static_cast<uint64_t>(here ? calls : calls - more), "time");
  };
  return (scope.empty() ? "the root module" : "module " + scope) + " is called " + times(in_base) +
         " in the baseline, " + times(!in_base) + " in the candidate";
}

}  // namespace

std::optional<RootReport> report_clipping(const StepPair& pair,
                                          const std::optional<RootChoice>& before,
                                          Tolerances& ignored, const PairReporter& reporter) {
  const Clipping base = clipping_of(pair.base, ignored), cand = clipping_of(pair.cand, ignored);
  if (base.first.has_value() == cand.first.has_value()) return std::nullopt;
  const bool in_base = base.first.has_value();
  const Clipping& clipping = in_base ? base : cand;
  if (clipping.factor > 1 - kUpdateNormLimit) return std::nullopt;
  if (is_behind(pair, before, in_base, *clipping.first)) return std::nullopt;
  RootReport root = one_sided_root(pair, in_base, *clipping.first, reporter);
  root.setting = std::string("gradients are clipped in the ") +
                 (in_base ? "baseline" : "candidate") + " alone, to " +
                 tools::percent_text(clipping.factor) + " of their norm";
  return root;
}

std::optional<RootReport> report_more_calls(const StepPair& pair, const RootChoice& choice,
                                            Tolerances& ignored, const PairReporter& reporter) {
  // A parameter's gradient is the sum over all calls of its module.
  const bool is_sum = pair.base_of(choice.match).kind == SlotKind::kGrad;
  const auto given = is_sum ? std::optional(choice.match) : own_input(pair, choice.match);
  if (!given || choice.changed) return std::nullopt;
  const Match& match = pair.alignment.matches[*given];
  for (const bool in_base : {true, false}) {
    const auto& values = in_base ? pair.base.values : pair.cand.values;
    const auto& alone = in_base ? pair.alignment.base_only : pair.alignment.cand_only;
    const uint32_t end = in_base ? match.base : match.cand;
    const auto called = called_in_both(pair, in_base);
    const auto is_more = [&](uint32_t i) {
      const ValueRecord& one = values[i];
      return one.kind == SlotKind::kOutput && !one.key.op && called.contains(one.key.scope.value) &&
             !ignored.of(one);
    };
    const auto used = std::ranges::find_if(alone, [&](uint32_t i) {
      const ValueRecord& one = values[i];
      const bool is_part = is_sum ? one.key.scope == values[end].key.scope &&
                                        one.key.phase == format::Phase::kForward
                                  : one.stats.hash == values[end].stats.hash;
      return i < end && is_part && is_more(i);
    });
    if (used == alone.end()) continue;
    const auto first = std::ranges::find_if(alone, [&](uint32_t i) {
      return values[i].key.phase == values[*used].key.phase && is_more(i);
    });
    RootReport root = one_sided_root(pair, in_base, *first, reporter);
    root.setting = calls_text(values, alone, values[*first].key, root.record.scope, in_base);
    return root;
  }
  return std::nullopt;
}

std::optional<RootReport> report_lost_gradient(const StepPair& pair,
                                               const std::optional<RootChoice>& before,
                                               Tolerances& ignored, const PairReporter& reporter) {
  bool updated = false;
  for (uint32_t m = 0; m < pair.size() && !updated; ++m) updated = is_update(pair.base_of(m));
  if (!updated) return std::nullopt;
  for (const bool in_base : {true, false}) {
    const auto& indices = in_base ? pair.alignment.base_only : pair.alignment.cand_only;
    const auto lost = first_lost(pair, indices, in_base, ignored);
    if (!lost || is_behind(pair, before, in_base, *lost)) continue;
    RootReport root = one_sided_root(pair, in_base, *lost, reporter);
    root.only_in = in_base ? "baseline" : "candidate";
    return root;
  }
  return std::nullopt;
}

std::optional<RootChoice> choose_root(const StepPair& pair) {
  const std::vector<Comparison>& comparisons = pair.comparisons;
  const std::vector<ChangedBetween>& all = pair.lineage.changed;
  const auto diverged = [](const Comparison& c) {
    return c.verdict >= Class::kDiverged && c.verdict != Class::kChangedBetween;
  };
  auto first =
      std::ranges::find_if(comparisons, [&](const Comparison& c) { return diverged(c) && c.born; });
  if (first == comparisons.end()) first = std::ranges::find_if(comparisons, diverged);
  std::optional<RootChoice> root;
  if (first != comparisons.end()) {
    root = {static_cast<uint32_t>(first - comparisons.begin()), {}};
  }
  // The value was right at its producer, so every later difference may be a consequence.
  const ChangedBetween* changed = nullptr;
  const ChangedBetween* wrote = nullptr;
  for (const ChangedBetween& one : all) {
    const ChangedBetween*& best = one.by_op ? wrote : changed;
    const bool is_earlier = best == nullptr || one.producer < best->producer;
    if (one.by_op ? best == nullptr : is_earlier) best = &one;
  }
  if (changed != nullptr && (!root || changed->producer < root->match))
    root = {changed->producer, *changed};
  // An op that wrote its operand in one run alone, before anything has diverged, is the root itself,
  // unless what has is its result: that is what others read.
  const auto end_of = [](const RootChoice& one) {
    return one.changed ? one.changed->consumer : one.match;
  };
  const auto is_own = [&](const RootChoice& one) {
    return call_key(pair.base_of(one.match)) == call_key(pair.base_of(wrote->producer));
  };
  if (wrote != nullptr && (!root || (wrote->consumer < end_of(*root) && !is_own(*root))))
    return RootChoice{wrote->producer, *wrote};
  return root;
}

RootReport report_root(const StepPair& pair, const RootChoice& choice,
                       const PairReporter& reporter) {
  RootReport root;
  root.record = reporter.of_match(pair, choice.match);
  root.position = choice.match;
  const Class worst_input = root.record.comparison.worst_input;
  const ValueRecord& record = pair.base_of(choice.match);
  root.weights_differ = record.kind == SlotKind::kParam && pair.base.step == 0 &&
                        record.key.phase == format::Phase::kForward;
  if (record.kind == SlotKind::kOutput)
    root.buffers = initial_buffers(pair, choice.match, reporter);
  const uint32_t first = choice.match - std::min(choice.match, kAround);
  const uint32_t count = pair.size();
  for (uint32_t m = first; m < std::min(count, choice.match + kAround + 1); ++m) {
    root.around.push_back(reporter.of_match(pair, m));
  }
  root.around_root = choice.match - first;
  if (!choice.changed) root.made_by = maker_of_root(pair, choice.match, reporter.names());
  root.flow = flow_of(pair, choice.match, root.made_by, reporter);
  root.gradients = worst_gradients(pair, reporter);
  if (is_made_between(pair, choice.match) || worst_input == Class::kBitDifference) {
    find_place_between(pair, choice.match, reporter, root);
  }
  if (is_update(record)) root.updates = count_updates(pair);
  root.holder = holder_of(pair, choice.match);
  root.region = region_of(pair, choice.match, reporter);
  root.vectors_only =
      record.key.phase == format::Phase::kOptimizer && differs_in_vectors_only(pair);
  if (!choice.changed) return root;

  root.record.comparison = {.verdict = Class::kChangedBetween,
                            .field = Field::kHash,
                            .difference = std::numeric_limits<double>::quiet_NaN(),
                            .tolerance = std::numeric_limits<double>::quiet_NaN(),
                            .bits_differ = true};
  root.changed_in_cand = choice.changed->in_cand;
  root.consumer = reporter.of_match(pair, choice.changed->consumer);
  for (uint32_t m = choice.match + 1; m < count && !root.effect; ++m) {
    const Comparison& c = pair.comparisons[m];
    if (c.verdict >= Class::kDiverged && (is_measured(c.field) || c.field == Field::kNonFinite)) {
      root.effect = reporter.of_match(pair, m);
    }
  }
  return root;
}

}  // namespace convtrace::diff

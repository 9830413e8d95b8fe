#include "tools/diff/verdict/one_sided_root.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tools/common/text.h"
#include "tools/diff/births/updates.h"
#include "tools/diff/verdict/step_summary.h"

namespace convtrace::diff {
namespace {

/// Scopes of the modules that both runs called, by their names in one run.
std::unordered_set<uint32_t> called_in_both(const StepPair& pair, bool in_base) {
  std::unordered_set<uint32_t> scopes;
  for (uint32_t m = 0; m < pair.size(); ++m) {
    const ValueRecord& record = in_base ? pair.base_of(m) : pair.cand_of(m);
    if (record.kind == Role::kOutput) scopes.insert(record.key.scope.value);
  }
  return scopes;
}

/// Clipping in a step of one run: norms of the gradients that it changes.
struct Clipping {
  std::optional<uint32_t> first;  ///< gradient
  double before = 0, after = 0;
  bool was_used = false;  ///< the optimizer got a gradient before it was clipped

  [[nodiscard]] bool is_late() const { return was_used && after == 0; }
  [[nodiscard]] double factor() const { return before > 0 && !is_late() ? after / before : 1; }
  /// @return how the optimizer gets the gradients.
  [[nodiscard]] std::string text() const {
    return is_late() ? "behind their use by the optimizer" : "to " + tools::number_text(after);
  }
};

Clipping clipping_of(const StepRecords& step, Tolerances& ignored) {
  Clipping clipping;
  std::unordered_set<uint64_t> clipped, used;
  for (uint32_t i = 0; i < step.values.size(); ++i) {
    const ValueRecord& record = step.values[i];
    if (!is_parameter_gradient(record.kind) || ignored.of(record)) continue;
    if (record.kind == Role::kUnclipped) {
      if (!clipping.first) clipping.first = i;
      clipping.was_used |= used.contains(parameter_key(record));
      clipped.insert(parameter_key(record));
      clipping.before = std::hypot(clipping.before, record.stats.l2);
    } else if (used.insert(parameter_key(record)); clipped.contains(parameter_key(record))) {
      clipping.after = std::hypot(clipping.after, record.stats.l2);
    }
  }
  return clipping;
}

/// @return whether the known root comes before this value.
bool is_behind(const StepPair& pair, const std::optional<RootChoice>& known, bool in_base,
               uint32_t index) {
  if (!known) return false;
  const Match& match = pair.alignment.matches[known->match];
  return (in_base ? match.base : match.cand) < index;
}

/// @return the count of matches before the first one that comes after the value `index` of one run.
uint32_t matches_before(const StepPair& pair, bool in_base, uint32_t index) {
  const auto& matches = pair.alignment.matches;
  const auto behind = std::ranges::find_if(
      matches, [&](const Match& one) { return (in_base ? one.base : one.cand) > index; });
  return static_cast<uint32_t>(behind - matches.begin());
}

RootReport one_sided_root(const StepPair& pair, bool in_base, uint32_t index,
                          const PairReporter& reporter) {
  RootReport root;
  root.record = reporter.of_one(in_base ? pair.base : pair.cand, index, in_base);
  root.record.comparison = decided(Class::kDiverged, Field::kNone);
  root.record.cand_scope = root.record.scope;
  root.record.cand_slot = root.record.slot;
  root.position = matches_before(pair, in_base, index);
  show_before(pair, static_cast<uint32_t>(root.position), root);
  return root;
}

/// @return the first index of a lost gradient among `indices`, which are ascending.
std::optional<uint32_t> first_lost(const StepPair& pair, std::span<const uint32_t> indices,
                                   bool in_base, Tolerances& ignored) {
  const auto& values = in_base ? pair.base.values : pair.cand.values;
  const auto called = called_in_both(pair, in_base);
  const auto lost = std::ranges::find_if(indices, [&](uint32_t i) {
    const ValueRecord& record = values[i];
    return record.kind == Role::kGradient && record.stats.l2 > 0 &&
           called.contains(record.key.scope.value) && !ignored.of(record);
  });
  return lost == indices.end() ? std::nullopt : std::optional(*lost);
}

/// @return the first differing input of `match`'s own call; `match` itself if it is an input.
std::optional<uint32_t> own_input(const StepPair& pair, uint32_t match) {
  const RecordKey& own = pair.base_of(match).key;
  for (uint32_t m = 0; m <= match; ++m) {
    const ValueRecord& record = pair.base_of(m);
    if (record.kind == Role::kInput && pair.comparisons[m].bits_differ &&
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
  return tools::module_text(scope) + " is called " + times(in_base) + " in the baseline, " +
         times(!in_base) + " in the candidate";
}

/// @return whether all values of a role agree; nullopt if none was compared.
std::optional<bool> all_agree(const StepPair& pair, Role role) {
  std::optional<bool> all;
  for (uint32_t m = 0; m < pair.size(); ++m)
    if (pair.base_of(m).kind == role)
      all = all.value_or(true) && agrees(pair.comparisons[m].verdict);
  return all;
}

/// @return a root if both runs clip, to unlike norms, gradients that agree until then.
std::optional<RootReport> report_clipped_otherwise(const StepPair& pair,
                                                   const std::optional<RootChoice>& first,
                                                   const Clipping& base, const Clipping& cand,
                                                   const PairReporter& reporter) {
  if (!first || first->changed ||
      std::abs(base.factor() - cand.factor()) <=
          kUpdateNormLimit * std::max(base.factor(), cand.factor()))
    return std::nullopt;
  const ValueRecord& record = pair.base_of(first->match);
  if (record.kind != Role::kGradient) return std::nullopt;
  if (!all_agree(pair, Role::kUnclipped).value_or(false)) return std::nullopt;
  RootReport root = report_root(pair, *first, reporter);
  root.setting = "gradients of norm " + tools::number_text(base.before) + " are clipped " +
                 base.text() + " in the baseline, " + cand.text() +
                 " in the candidate; until then they agree";
  return root;
}

std::string sum_of_losses(const StepRecords& step) {
  double sum = 0;
  for (const ValueRecord& one : step.values)
    if (one.kind == Role::kLoss) sum += one.stats.mean * static_cast<double>(one.stats.count);
  return tools::number_text(sum, 4);
}

/// Parameters whose gradients a step of one run clips, with the first such record of each, and those
/// whose gradients the optimizer got.
struct Clipped {
  std::unordered_map<uint64_t, uint32_t> first;
  std::unordered_set<uint64_t> all;
};

Clipped clipped_in(const StepRecords& step) {
  Clipped clipped;
  for (uint32_t i = 0; i < step.values.size(); ++i) {
    const ValueRecord& record = step.values[i];
    if (record.kind == Role::kUnclipped) clipped.first.try_emplace(parameter_key(record), i);
    if (record.kind == Role::kGradient) clipped.all.insert(parameter_key(record));
  }
  return clipped;
}

/// @return a root if both runs clip, and the gradient of a parameter that both have is clipped in
/// one of them alone: the norm is that of other gradients.
std::optional<RootReport> report_others_clipped(const StepPair& pair,
                                                const std::optional<RootChoice>& first,
                                                const PairReporter& reporter) {
  if (!first || first->changed) return std::nullopt;
  const Role kind = pair.base_of(first->match).kind;
  if (kind != Role::kGradientNorm && kind != Role::kGradient) return std::nullopt;
  if (!all_agree(pair, Role::kUnclipped).value_or(true)) return std::nullopt;
  const Clipped base = clipped_in(pair.base), cand = clipped_in(pair.cand);
  for (const bool in_base : {true, false}) {
    const Clipped &here = in_base ? base : cand, &there = in_base ? cand : base;
    std::optional<uint32_t> index;
    for (const auto& [parameter, at] : here.first) {
      const bool is_alone = !there.first.contains(parameter) && there.all.contains(parameter);
      if (is_alone && (!index || at < *index)) index = at;
    }
    if (!index) continue;
    RootReport root = one_sided_root(pair, in_base, *index, reporter);
    const auto share = [](const Clipped& one) {
      return tools::count_text(one.first.size()) + " of " +
             tools::counted(one.all.size(), "parameter");
    };
    root.setting = "gradients of " + share(base) + " are clipped in the baseline, of " +
                   share(cand) + " in the candidate; until then they agree";
    return root;
  }
  return std::nullopt;
}

}  // namespace

std::optional<RootReport> report_clipping(const StepPair& pair,
                                          const std::optional<RootChoice>& before,
                                          Tolerances& ignored, const PairReporter& reporter) {
  const Clipping base = clipping_of(pair.base, ignored), cand = clipping_of(pair.cand, ignored);
  if (base.first && cand.first) {
    auto others = report_others_clipped(pair, before, reporter);
    return others ? std::move(others)
                  : report_clipped_otherwise(pair, before, base, cand, reporter);
  }
  if (!base.first && !cand.first) return std::nullopt;
  const bool in_base = base.first.has_value();
  const Clipping& clipping = in_base ? base : cand;
  if (clipping.factor() > 1 - kUpdateNormLimit) return std::nullopt;
  if (is_behind(pair, before, in_base, *clipping.first)) return std::nullopt;
  // Its optimizer got the same gradients, so the other run clips by itself.
  if (all_agree(pair, Role::kGradient).value_or(false)) return std::nullopt;
  RootReport root = one_sided_root(pair, in_base, *clipping.first, reporter);
  root.setting = std::string("gradients are clipped in the ") +
                 (in_base ? "baseline" : "candidate") + " alone, to " +
                 tools::percent_text(clipping.factor()) + " of their norm";
  return root;
}

std::optional<RootReport> report_other_parameters(const StepPair& pair, const LastWeights& known,
                                                  Tolerances& ignored,
                                                  const PairReporter& reporter) {
  const auto updates = [&](const StepRecords& step) {
    std::vector<uint32_t> found;
    for (uint32_t i = 0; i < step.values.size(); ++i)
      if (is_update(step.values[i]) && !ignored.of(step.values[i])) found.push_back(i);
    return found;
  };
  const auto base = updates(pair.base), cand = updates(pair.cand);
  if (base.empty() || cand.empty()) return std::nullopt;
  for (uint32_t m = 0; m < pair.size(); ++m)
    if (is_update(pair.base_of(m))) return std::nullopt;
  // A program that has other parameters is not one that updates others.
  const auto is_known = [&](const ValueRecord& update, bool in_base) {
    return known.find(in_base, parameter_key(update)) != nullptr ||
           std::ranges::any_of(
               (in_base ? pair.base : pair.cand).values, [&](const ValueRecord& one) {
                 return is_first_weight(one) && parameter_key(one) == parameter_key(update);
               });
  };
  if (!is_known(pair.base.values[base.front()], false) ||
      !is_known(pair.cand.values[cand.front()], true))
    return std::nullopt;
  const auto named = [&](const StepRecords& step, const std::vector<uint32_t>& found) {
    const ValueRecord& first = step.values[found.front()];
    return path_in(reporter.text(first.key.scope), reporter.text(first.tensor)) +
           (found.size() > 1 ? " and " + tools::count_text(found.size() - 1) + " more" : "");
  };
  RootReport root = one_sided_root(pair, true, base.front(), reporter);
  root.setting = "the step updates other parameters: " + named(pair.base, base) +
                 " in the baseline, " + named(pair.cand, cand) + " in the candidate";
  return root;
}

std::optional<RootReport> report_more_passes(const StepPair& pair, const RootChoice& choice,
                                             Tolerances& ignored, const PairReporter& reporter) {
  const uint64_t of_base = pair.alignment.base_passes, of_cand = pair.alignment.cand_passes;
  const bool in_base = of_base > of_cand;
  const auto& alone = in_base ? pair.alignment.base_only : pair.alignment.cand_only;
  const auto first = std::ranges::find_if(alone, [&](uint32_t i) {
    const ValueRecord& one = (in_base ? pair.base : pair.cand).values[i];
    return one.kind == Role::kLoss && !ignored.of(one);
  });
  if (of_base == of_cand || first == alone.end() || is_behind(pair, choice, in_base, *first))
    return std::nullopt;
  RootReport root = one_sided_root(pair, in_base, *first, reporter);
  root.setting = passes_text(of_base, of_cand);
  if (pair.alignment.parted == Parted::kCalls)
    root.setting +=
        ", over as many rows: their number alone explains no other gradients, the losses (" +
        sum_of_losses(pair.base) + " | " + sum_of_losses(pair.cand) +
        " in all) or what depends on the whole batch may";
  return root;
}

std::optional<RootReport> report_more_calls(const StepPair& pair, const RootChoice& choice,
                                            Tolerances& ignored, const PairReporter& reporter) {
  // A parameter's gradient is the sum over all calls of its module.
  const bool is_sum = is_parameter_gradient(pair.base_of(choice.match).kind);
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
      return one.kind == Role::kOutput && !one.key.op && called.contains(one.key.scope.value) &&
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

}  // namespace convtrace::diff

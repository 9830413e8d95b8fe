#include "tools/diff/verdict/root.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "tools/diff/births/births.h"
#include "tools/diff/births/updates.h"
#include "tools/diff/compare/factor.h"
#include "tools/diff/verdict/data_flow.h"
#include "tools/diff/verdict/root_region.h"

namespace convtrace::diff {
namespace {

/// Values of the same step shown before and after the root.
constexpr uint32_t kAround = 12;

/// @return whether a value is an input that was computed between modules, and not data.
bool is_made_between(const StepPair& pair, uint32_t match) {
  const ValueRecord& record = pair.base_of(match);
  bool is_behind_output = false;
  for (uint32_t m = 0; m < match && !is_behind_output; ++m)
    is_behind_output = pair.base_of(m).kind == Role::kOutput;
  return record.kind == Role::kInput && !is_given(record, is_behind_output);
}

/// Finds the first differing input of the call that `match` belongs to, which may be `match`
/// itself: code outside of modules made it.
void find_place_between(const StepPair& pair, uint32_t match, const PairReporter& reporter,
                        RootReport& root) {
  const ValueRecord& found = pair.base_of(match);
  const bool is_input = found.kind == Role::kInput;
  for (uint32_t m = 0; m <= match && !root.came_in; ++m) {
    const ValueRecord& record = pair.base_of(m);
    const Class verdict = pair.comparisons[m].verdict;
    const bool own = record.key.scope == found.key.scope && record.key.call == found.key.call &&
                     record.key.phase == found.key.phase;
    if (record.kind == Role::kOutput && agrees(verdict) && !own) {
      root.agreed_before = reporter.of_match(pair, m);
    } else if (is_input ? m == match
                        : record.kind == Role::kInput && own && verdict == Class::kBitDifference) {
      root.came_in = reporter.of_match(pair, m);
    }
  }
  if (!root.came_in) root.agreed_before.reset();
}

/// @return RootReport::taken_alone
std::string inputs_taken_alone(const StepPair& pair, uint32_t match,
                               const format::Definitions& names) {
  const ValueRecord& output = pair.base_of(match);
  if (output.kind != Role::kOutput) return "";
  const auto inputs = [&](const StepRecords& step, const std::vector<uint32_t>& alone) {
    std::string text;
    for (const uint32_t i : alone) {
      const ValueRecord& one = step.values[i];
      if (one.kind == Role::kInput && one.key.scope == output.key.scope &&
          one.key.call == output.key.call && one.key.op == output.key.op)
        text += (text.empty() ? "" : ", ") + std::string(names.text(one.key.slot));
    }
    return text;
  };
  const std::string in_base = inputs(pair.base, pair.alignment.base_only);
  const std::string in_cand = inputs(pair.cand, pair.alignment.cand_only);
  if (in_base.empty() && in_cand.empty()) return "";
  const std::string text = in_base.empty() ? "" : in_base + " in the baseline";
  return in_cand.empty() ? text
                         : text + (text.empty() ? "" : ", and ") + in_cand + " in the candidate";
}

bool differs_in_vectors_only(const StepPair& pair) {
  bool vectors_differ = false, others_agree = false;
  for (uint32_t m = 0; m < pair.comparisons.size(); ++m) {
    const ValueRecord& record = pair.base_of(m);
    if (record.kind != Role::kParameter || record.key.phase != format::Phase::kOptimizer) continue;
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
    if (is_parameter_gradient(pair.base_of(m).kind) && differs) worst.push_back(m);
  }
  std::ranges::stable_sort(worst, std::ranges::greater(),
                           [&](uint32_t m) { return pair.comparisons[m].z; });
  worst.resize(std::min(worst.size(), kMaxGradients));
  std::vector<RecordReport> gradients;
  for (const uint32_t m : worst) gradients.push_back(reporter.of_match(pair, m));
  return gradients;
}

/// @return the buffers of `match`'s own module that began with other bits.
std::vector<std::string> initial_buffers(const StepPair& pair, uint32_t match,
                                         const PairReporter& reporter) {
  std::vector<std::string> names;
  for (uint32_t m = 0; m < pair.size(); ++m) {
    const ValueRecord& record = pair.base_of(m);
    if (record.kind == Role::kInitialBuffer && pair.comparisons[m].bits_differ &&
        record.key.scope == pair.base_of(match).key.scope)
      names.push_back(reporter.text(record.tensor));
  }
  return names;
}

/// @return whether all sources of a gradient were compared and agree.
bool is_made_of_equal(const RootReport& root, const DataFlow& flow) {
  return root.before[static_cast<size_t>(format::Phase::kForward)] == Shown::kEqual &&
         !flow.sources.empty() && std::ranges::all_of(flow.sources, [](const FlowStep& one) {
           return !one.by_order && is_match(one.value.comparison.verdict);
         });
}

/// Looks for evidence that a parameter's gradient was right when the backward pass ended. The write
/// count of a tensor is that of its memory: it is evidence only if gradients that agree have equal
/// counts.
/// A gradient that a collective sends is judged by its record there, since the program may write to
/// it after the reduction. One that is clipped is judged by its record before that.
void look_behind_backward(const StepPair& pair, uint32_t match, RootReport& root) {
  const ValueRecord &base = pair.base_of(match), &cand = pair.cand_of(match);
  const bool is_sent = base.kind == Role::kSent && root.made_of_equal;
  if (!is_sent && (!is_parameter_gradient(base.kind) || base.key.op)) return;
  const auto writes = [](const ValueRecord& one) { return int64_t{one.value.version}; };
  bool others_agree = false;
  for (uint32_t m = 0; m < pair.size(); ++m) {
    const ValueRecord& one = pair.base_of(m);
    if (one.key.op != base.key.op || !is_match(pair.comparisons[m].verdict)) continue;
    root.right_unclipped |=
        one.kind == Role::kUnclipped && parameter_key(one) == parameter_key(base);
    if (one.kind != base.kind) continue;
    if (writes(one) != writes(pair.cand_of(m))) return;
    others_agree = true;
  }
  const bool made_of_equal = is_sent || is_made_of_equal(root, root.flow);
  if (made_of_equal && (others_agree || factor_of(base.stats, cand.stats)))
    root.more_writes = writes(cand) - writes(base);
}

/// @return the modules inside that of `match` whose outputs were compared before it.
std::vector<std::string> compared_inside(const StepPair& pair, uint32_t match,
                                         const PairReporter& reporter) {
  std::set<std::string> scopes;
  for (uint32_t m = 0; m < match; ++m) {
    const ValueRecord& record = pair.base_of(m);
    if (record.kind == Role::kOutput && record.key.phase == pair.base_of(match).key.phase)
      scopes.insert(reporter.text(record.key.scope));
  }
  const std::string outer = reporter.text(pair.base_of(match).key.scope);
  std::erase_if(scopes, [&](const std::string& one) { return !is_inside(one, outer); });
  return {scopes.begin(), scopes.end()};
}

/// Names the memory that a collective, an op or a kernel used outside of modules: another record of
/// the same memory in the same step has the name of a parameter, a gradient or a buffer.
/// @return the first one; null if `values[index]` is a module's own value, or there is none.
const ValueRecord* known_as(const StepRecords& step, uint32_t index) {
  const ValueRecord& record = step.values[index];
  const auto memory = [](const ValueRecord& one) {
    return std::tie(one.value.generation, one.value.offset, one.address, one.bytes);
  };
  if (!record.key.op && !record.key.family) return nullptr;
  if (record.value.generation == 0) return nullptr;
  const auto named = std::ranges::find_if(step.values, [&](const ValueRecord& one) {
    const bool has_name = is_parameter_gradient(one.kind) || one.kind == Role::kParameter ||
                          one.kind == Role::kBuffer;
    return has_name && !one.key.op && memory(one) == memory(record);
  });
  return named == step.values.end() ? nullptr : &*named;
}

std::string memory_text(const ValueRecord& named, const PairReporter& reporter) {
  return std::string(is_parameter_gradient(named.kind) ? "the gradient of "
                     : named.kind == Role::kParameter  ? "parameter "
                                                       : "buffer ") +
         path_in(reporter.text(named.key.scope), reporter.text(named.tensor));
}

/// @return whether two values were matched with each other.
bool are_partners(const StepPair& pair, const ValueRecord& base, const ValueRecord& cand) {
  return std::ranges::any_of(pair.alignment.matches, [&](const Match& match) {
    return &pair.base.values[match.base] == &base && &pair.cand.values[match.cand] == &cand;
  });
}

/// Names the root's memory, and compares the sources of a gradient.
void name_memory(const StepPair& pair, uint32_t match, const PairReporter& reporter,
                 RootReport& root) {
  const ValueRecord* named = known_as(pair.base, pair.alignment.matches[match].base);
  if (named == nullptr) return;
  root.known_as = memory_text(*named, reporter);
  const ValueRecord* other = known_as(pair.cand, pair.alignment.matches[match].cand);
  const std::string in_cand = other != nullptr ? memory_text(*other, reporter) : root.known_as;
  root.is_other_memory = in_cand != root.known_as && !are_partners(pair, *named, *other);
  if (root.is_other_memory) root.known_as += " in the baseline, " + in_cand + " in the candidate";
  if (root.is_other_memory || !is_parameter_gradient(named->kind)) return;
  root.known_in = reporter.text(named->key.scope);
  for (uint32_t m = 0; m < pair.size(); ++m) {
    if (&pair.base_of(m) != named) continue;
    root.made_of_equal = is_made_of_equal(root, flow_of(pair, m, std::nullopt, reporter));
  }
}

/// The largest distance of ratios of rounded numbers, in units of the coarser type's roundoff, and
/// the smallest deviation from 1 that is reported as a factor, as for tensors.
constexpr double kRoundings = 8, kLeast = 1e-3;

bool is_scalar(const ValueRecord& record) {
  return record.capture != format::Capture::kHash && record.stats.count == 1 &&
         std::isfinite(record.stats.mean);
}

/// @return a key that all calls of a place share.
RecordKey place_of(const ValueRecord& record) {
  RecordKey key = record.key;
  key.call = key.occurrence = 0;
  return key;
}

/// Finds the factor between the candidate's scalars of one place and the baseline's, as of losses 8
/// times as large. A single pair of numbers always has a ratio; several pairs with the same ratio
/// are evidence. For larger tensors see compare/factor.h.
/// @return nullopt if the match is no scalar, or has no other call in its step, or two of the calls
/// have other ratios, or the ratio is one.
std::optional<ScalarFactor> scalar_factor(const StepPair& pair, uint32_t match) {
  const ValueRecord& root = pair.base_of(match);
  if (!is_scalar(root) || !is_scalar(pair.cand_of(match))) return std::nullopt;
  const RecordKey place = place_of(root);
  double least = 0, largest = 0;
  ScalarFactor found;
  for (uint32_t m = 0; m < pair.size(); ++m) {
    const ValueRecord &base = pair.base_of(m), &cand = pair.cand_of(m);
    if (place_of(base) != place) continue;
    if (!is_scalar(base) || !is_scalar(cand) || base.stats.mean == 0) return std::nullopt;
    const double ratio = cand.stats.mean / base.stats.mean;
    least = found.calls == 0 ? ratio : std::min(least, ratio);
    largest = found.calls == 0 ? ratio : std::max(largest, ratio);
    if (m == match) found.value = ratio;
    ++found.calls;
  }
  const double roundoff =
      std::max(unit_roundoff(root.dtype), unit_roundoff(pair.cand_of(match).dtype));
  if (found.calls < 2 || largest - least > kRoundings * roundoff * std::abs(found.value) ||
      std::abs(found.value - 1) < std::max(kLeast, kRoundings * roundoff))
    return std::nullopt;
  return found;
}

}  // namespace

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
    // The result of a call says more than what its backward pass needs, where both differ.
    const ValueRecord& record = pair.base_of(root->match);
    for (uint32_t m = root->match + 1; record.kind == Role::kNeeded && m < pair.size(); ++m) {
      const ValueRecord& result = pair.base_of(m);
      if (result.kind != Role::kOutput || result.key.op || result.key.scope != record.key.scope ||
          result.key.call != record.key.call || result.key.phase != record.key.phase)
        continue;
      if (diverged(comparisons[m]) && comparisons[m].born) root->match = m;
      break;
    }
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
  // An op that wrote its operand in only one run, before any divergence, is the root itself, unless
  // the first divergence is its own result, which other calls read.
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

void show_before(const StepPair& pair, uint32_t end, RootReport& root) {
  for (uint32_t m = 0; m < end; ++m) {
    const ValueRecord& record = pair.base_of(m);
    const Role kind = record.kind;
    const bool is_state =
        kind == Role::kParameter || kind == Role::kBuffer || kind == Role::kInitialBuffer;
    // A module's input in the forward pass is no evidence about its own computation.
    const bool is_taken = kind == Role::kInput && record.key.phase != format::Phase::kData;
    const Class verdict = pair.comparisons[m].verdict;
    if (is_state || is_taken || verdict == Class::kBitDifference) continue;
    const Shown shown = verdict >= Class::kDiverged ? Shown::kDifferent : Shown::kEqual;
    Shown& of_phase = root.before[static_cast<size_t>(record.key.phase)];
    of_phase = std::max(of_phase, shown);
    if (kind == Role::kGradient)
      root.parameter_gradients = std::max(root.parameter_gradients, shown);
  }
}

/// @return whether another input of a value's call has the same bits, and is no constant.
bool any_other_input_agrees(const StepPair& pair, uint32_t match) {
  const auto call = call_key(pair.base_of(match));
  for (uint32_t m = 0; m < pair.size(); ++m) {
    const ValueRecord& one = pair.base_of(m);
    if (m != match && one.kind == Role::kInput && call_key(one) == call &&
        one.stats.min.bits != one.stats.max.bits &&
        pair.comparisons[m].verdict == Class::kIdentical)
      return true;
  }
  return false;
}

RootReport report_root(const StepPair& pair, const RootChoice& choice,
                       const PairReporter& reporter) {
  RootReport root;
  root.record = reporter.of_match(pair, choice.match);
  root.position = choice.match;
  show_before(pair, choice.match, root);
  const Class worst_input = root.record.comparison.worst_input;
  const ValueRecord& record = pair.base_of(choice.match);
  root.weights_differ =
      record.kind == Role::kParameter && record.key.phase == format::Phase::kForward;
  root.other_inputs_agree =
      record.key.phase == format::Phase::kData && any_other_input_agrees(pair, choice.match);
  if (record.kind == Role::kOutput) {
    root.buffers = initial_buffers(pair, choice.match, reporter);
    root.compared_inside = compared_inside(pair, choice.match, reporter);
  }
  const uint32_t first = choice.match - std::min(choice.match, kAround);
  const uint32_t count = pair.size();
  for (uint32_t m = first; m < std::min(count, choice.match + kAround + 1); ++m)
    root.around.push_back(reporter.of_match(pair, m));
  root.around_root = choice.match - first;
  if (!choice.changed) root.made_by = maker_of_root(pair, choice.match, reporter.names());
  root.flow = flow_of(pair, choice.match, root.made_by, reporter);
  root.gradients = worst_gradients(pair, reporter);
  if (is_made_between(pair, choice.match) || worst_input == Class::kBitDifference)
    find_place_between(pair, choice.match, reporter, root);
  if (is_update(record)) root.updates = count_updates(pair);
  root.holder = holder_of(pair, choice.match);
  root.taken_alone = inputs_taken_alone(pair, choice.match, reporter.names());
  name_memory(pair, choice.match, reporter, root);
  if (!choice.changed) {
    look_behind_backward(pair, choice.match, root);
    root.scalar_factor = scalar_factor(pair, choice.match);
  }
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
    if (c.verdict >= Class::kDiverged && (is_measured(c.field) || c.field == Field::kNonFinite))
      root.effect = reporter.of_match(pair, m);
  }
  return root;
}

void find_loss_factor(RootReport& root) {
  const format::Stats &base = root.record.base.stats, &cand = root.record.cand.stats;
  const double factor = root.shown ? root.shown->factor : 0;
  if (factor == 0 || root.scalar_factor || !root.has_values() || base.count != 1 ||
      root.record.phase != format::Phase::kLoss || base.mean == 0)
    return;
  const double ratio = cand.mean / base.mean;
  if (Factor{ratio / factor, 0}.is_one()) root.scalar_factor = {ratio, 1};
}

}  // namespace convtrace::diff

#include "tools/diff/verdict/root.h"

#include <algorithm>
#include <limits>

namespace convtrace::diff {
namespace {

/// Values of the same step shown before and after the root.
constexpr uint32_t kAround = 12;

/// Whether a value is an input that code in no module made, and not data: what a criterion is given
/// is made of outputs.
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

/// The input that differed first, of the call that `match` is an output of, or `match` itself: code
/// in no module made it.
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

}  // namespace

std::optional<RootChoice> choose_root(std::span<const Comparison> comparisons,
                                      const Lineage& lineage) {
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
  // The value was still right at its producer: whatever parted after that may be a victim of it.
  const auto changed = std::ranges::min_element(lineage.changed, {}, &ChangedBetween::producer);
  if (changed != lineage.changed.end() && (!root || changed->producer < root->match)) {
    return RootChoice{changed->producer, *changed};
  }
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
  const uint32_t first = choice.match - std::min(choice.match, kAround);
  const uint32_t count = pair.size();
  for (uint32_t m = first; m < std::min(count, choice.match + kAround + 1); ++m) {
    root.around.push_back(reporter.of_match(pair, m));
  }
  root.around_root = choice.match - first;
  root.gradients = worst_gradients(pair, reporter);
  if (is_made_between(pair, choice.match) || worst_input == Class::kBitDifference) {
    find_place_between(pair, choice.match, reporter, root);
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

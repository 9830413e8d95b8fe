#include "tools/diff/step_summary.h"

#include <algorithm>

namespace convtrace::diff {
namespace {

using format::Phase;

Class worst_of(const StepSummary& summary, Phase phase) {
  return summary.worst[static_cast<size_t>(phase)];
}

/// Phases in the order in which a step goes through them, and what a divergence in each means when
/// none before it diverges.
struct Meaning {
  Phase phase;
  const char* text;
};
constexpr Meaning kMeanings[] = {
    {Phase::kData, "the data differ: look at the data loader, its seed and its order"},
    {Phase::kForward, "the forward pass differs, on equal data"},
    {Phase::kLoss, "the forward pass agrees, the loss does not: look at the loss function"},
    {Phase::kRecompute,
     "forward and loss agree, what is computed again for the backward pass does not"},
    {Phase::kBackward, "forward and loss agree, the gradients do not: look at the backward pass"},
    {Phase::kCommunication, "what each rank computes agrees, what they exchange does not"},
    {Phase::kOptimizer,
     "neither loss nor gradients differ, the updated weights do: look at the optimizer"},
    {Phase::kEvaluation, "evaluation differs, training does not: look at the data evaluated on"},
};

}  // namespace

StepSummary summary_of(const StepRecords& base, const StepRecords& cand, const Alignment& alignment,
                       const std::vector<Comparison>& comparisons) {
  StepSummary summary;
  summary.step = base.step;
  for (size_t m = 0; m < comparisons.size(); ++m) {
    const ValueRecord& a = base.values[alignment.matches[m].base];
    const ValueRecord& b = cand.values[alignment.matches[m].cand];
    Class& worst = summary.worst[std::min(static_cast<size_t>(a.key.phase), kPhaseCount - 1)];
    worst = std::max(worst, comparisons[m].verdict);
    if (a.capture == format::Capture::kHash || b.capture == format::Capture::kHash) continue;
    if (a.kind == SlotKind::kLoss && !summary.base_loss) {
      summary.base_loss = a.stats.mean;
      summary.cand_loss = b.stats.mean;
    } else if (a.kind == SlotKind::kGrad && !a.unclipped) {
      summary.base_gradients += a.stats.l2 * a.stats.l2;
      summary.cand_gradients += b.stats.l2 * b.stats.l2;
      ++summary.gradients;
    }
  }
  return summary;
}

std::string phase_text(const std::vector<StepSummary>& summaries) {
  const StepSummary* first = nullptr;
  for (const StepSummary& summary : summaries) {
    const bool diverges =
        std::ranges::any_of(summary.worst, [](Class c) { return c >= Class::kDiverged; });
    if (diverges && (first == nullptr || summary.step < first->step)) first = &summary;
  }
  if (first == nullptr) return "";
  for (const Meaning& meaning : kMeanings) {
    if (worst_of(*first, meaning.phase) < Class::kDiverged) continue;
    return "step " + std::to_string(first->step) + ": " + meaning.text;
  }
  return "";
}

}  // namespace convtrace::diff

#include "tools/diff/verdict/step_summary.h"

#include "tools/common/text.h"

namespace convtrace::diff {

StepSummary summary_of(const StepRecords& base, const StepRecords& cand, const Alignment& alignment,
                       const std::vector<Comparison>& comparisons) {
  StepSummary summary;
  summary.step = base.step;
  summary.base_passes = alignment.base_passes;
  summary.cand_passes = alignment.cand_passes;
  summary.parted = alignment.parted;
  for (size_t m = 0; m < comparisons.size(); ++m) {
    const ValueRecord& a = base.values[alignment.matches[m].base];
    const ValueRecord& b = cand.values[alignment.matches[m].cand];
    Class& worst = summary.worst[index_of(a.key.phase)];
    worst = std::max(worst, comparisons[m].verdict);
    if (a.capture == format::Capture::kHash || b.capture == format::Capture::kHash) continue;
    if (a.kind == Role::kLoss && !summary.base_loss) {
      summary.base_loss = a.stats.mean;
      summary.cand_loss = b.stats.mean;
    } else if (a.kind == Role::kGradient) {
      summary.base_gradients += a.stats.l2 * a.stats.l2;
      summary.cand_gradients += b.stats.l2 * b.stats.l2;
      ++summary.gradients;
    } else if (a.kind == Role::kUnclipped) {
      summary.base_unclipped += a.stats.l2 * a.stats.l2;
      summary.cand_unclipped += b.stats.l2 * b.stats.l2;
      ++summary.unclipped;
    }
  }
  return summary;
}

std::string passes_text(uint64_t base, uint64_t cand) {
  return "backward passes in the step: " + tools::count_text(base) + " in the baseline, " +
         tools::count_text(cand) + " in the candidate";
}

}  // namespace convtrace::diff

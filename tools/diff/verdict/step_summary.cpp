#include "tools/diff/verdict/step_summary.h"

#include <algorithm>

namespace convtrace::diff {
StepSummary summary_of(const StepRecords& base, const StepRecords& cand, const Alignment& alignment,
                       const std::vector<Comparison>& comparisons) {
  StepSummary summary;
  summary.step = base.step;
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
    }
  }
  return summary;
}

}  // namespace convtrace::diff

#pragma once
/// @file step_summary.h
/// The summary of a training step in both runs: its loss, the norm of its gradients, and how well
/// each phase agrees. These are the numbers that people compare by hand.
///
/// Threads:  plain values.
/// Source:   the usual guide for matching two training runs: loss of the first step tests forward,
///           its gradient norms backward, the loss of the next step the optimizer.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/diff/align/align.h"
#include "tools/diff/compare/compare.h"

namespace convtrace::diff {

inline constexpr size_t kPhaseCount = 8;
/// @return the place of a phase in a list of them; later ones share the last.
[[nodiscard]] constexpr size_t index_of(format::Phase phase) {
  return std::min(static_cast<size_t>(phase), kPhaseCount - 1);
}
/// Later steps of longer runs have no summary.
inline constexpr size_t kMaxSummaries = 100'000;

struct StepSummary {
  uint32_t rank = 0, step = 0;
  uint64_t base_passes = 0, cand_passes = 0;  ///< backward passes
  Parted parted = Parted::kNothing;
  std::optional<double> base_loss, cand_loss;
  double base_gradients = 0, cand_gradients = 0;  ///< squared norms
  double base_unclipped = 0, cand_unclipped = 0;  ///< squared norms before clipping
  double base_updates = 0, cand_updates = 0;      ///< squared norms; 0: not known
  uint64_t gradients = 0;                         ///< number of gradients recorded with statistics
  uint64_t unclipped = 0;  ///< of them those that were recorded before clipping, too
  std::array<Class, kPhaseCount> worst{};  ///< by format::Phase
};

[[nodiscard]] StepSummary summary_of(const StepRecords& base, const StepRecords& cand,
                                     const Alignment& alignment,
                                     const std::vector<Comparison>& comparisons);

/// @return "backward passes in the step: 4 in the baseline, 1 in the candidate".
[[nodiscard]] std::string passes_text(uint64_t base, uint64_t cand);

}  // namespace convtrace::diff

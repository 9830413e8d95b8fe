#pragma once
/// @file step_summary.h
/// What a training step comes to in both runs: its loss, the norm of its gradients, and how well
/// each phase agrees. These are the numbers that people compare by hand.
///
/// Threads:  plain values.
/// Source:   loss of the first step: forward; norms of its gradients: backward; loss of the next
///           one: optimizer (the usual guide for bringing a training run in line with another).

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/diff/align/align.h"
#include "tools/diff/compare/compare.h"

namespace convtrace::diff {

inline constexpr size_t kPhaseCount = 8;
/// Of longer runs the steps behind this one are not summed up.
inline constexpr size_t kMaxSummaries = 100'000;

struct StepSummary {
  uint32_t rank = 0, step = 0;
  std::optional<double> base_loss, cand_loss;
  double base_gradients = 0, cand_gradients = 0;  ///< squares of their norms
  uint64_t gradients = 0;                         ///< how many were recorded with statistics
  std::array<Class, kPhaseCount> worst{};         ///< by format::Phase
};

[[nodiscard]] StepSummary summary_of(const StepRecords& base, const StepRecords& cand,
                                     const Alignment& alignment,
                                     const std::vector<Comparison>& comparisons);

}  // namespace convtrace::diff

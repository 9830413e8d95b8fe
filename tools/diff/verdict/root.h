#pragma once
/// @file root.h
/// Finds the root of a step: the first record whose difference began in it (births.h), which is
/// neither the largest difference nor one that was passed on. Describes its surroundings.
///
/// Threads:  pure function.
/// Source:   docs/comparison.md "Verdict".

#include <cstdint>
#include <optional>
#include <span>

#include "tools/diff/align/lineage.h"
#include "tools/diff/compare/compare.h"
#include "tools/diff/model/tolerance.h"
#include "tools/diff/verdict/step_pair.h"

namespace convtrace::diff {

struct RootChoice {
  uint32_t match = 0;  ///< index into Alignment::matches
  /// For changed-between: `match` is the producer.
  std::optional<ChangedBetween> changed;
};

/// @param pair  compared; consumers in `lineage.changed` already are kChangedBetween.
/// @return the first birth; if all divergences were passed on, the first of them; a value that changed
/// between its producer and a consumer, or an op that wrote its operand, before that.
[[nodiscard]] std::optional<RootChoice> choose_root(const StepPair& pair);

/// @return the root with everything that its step shows; the caller adds what came before the step.
[[nodiscard]] RootReport report_root(const StepPair& pair, const RootChoice& choice,
                                     const PairReporter& reporter);

/// @param ignored  values that cannot be the root, here and below.
/// @return a root if only one run clips its gradients, by more than norms of updates may differ.
[[nodiscard]] std::optional<RootReport> report_clipping(const StepPair& pair,
                                                        const std::optional<RootChoice>& before,
                                                        Tolerances& ignored,
                                                        const PairReporter& reporter);

/// A gradient that is lost is no rounding, however large all other differences are.
/// @param before  the known root, if any; later gradients do not count.
/// @return the first gradient of a parameter, not 0, that only one run has, although both runs
/// called its module and went on to the optimizer.
[[nodiscard]] std::optional<RootReport> report_lost_gradient(
    const StepPair& pair, const std::optional<RootChoice>& before, Tolerances& ignored,
    const PairReporter& reporter);

/// @return a root if one run calls a module more often and the root depends on such a call: it gets
/// the output of that call, or is a gradient of that module.
[[nodiscard]] std::optional<RootReport> report_more_calls(const StepPair& pair,
                                                          const RootChoice& choice,
                                                          Tolerances& ignored,
                                                          const PairReporter& reporter);

}  // namespace convtrace::diff

#pragma once
/// @file root.h
/// Decides which record of a step is where two runs part: the first whose difference was born there
/// (births.h), not the loudest and not its victims; and says what is around it.
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

/// @param comparisons one per match; consumers in `lineage.changed` already are kChangedBetween.
/// @return the first birth; where everything that diverged was passed on, the first of that
[[nodiscard]] std::optional<RootChoice> choose_root(std::span<const Comparison> comparisons,
                                                    const Lineage& lineage);

/// @return what the step tells of the root; what came before the step is left to the caller.
[[nodiscard]] RootReport report_root(const StepPair& pair, const RootChoice& choice,
                                     const PairReporter& reporter);

/// @param ignored  values that are no root, here and below.
/// @return that one run alone clips its gradients, by more than norms of updates may differ.
[[nodiscard]] std::optional<RootReport> report_clipping(const StepPair& pair,
                                                        const std::optional<RootChoice>& before,
                                                        Tolerances& ignored,
                                                        const PairReporter& reporter);

/// A gradient that is lost is no rounding, however far all others are apart.
/// @param before  the root that is known, if any: what comes behind it does not count.
/// @return the first gradient of a parameter, not 0, that one run alone has, although both called
/// its module and went on to the optimizer.
[[nodiscard]] std::optional<RootReport> report_lost_gradient(
    const StepPair& pair, const std::optional<RootChoice>& before, Tolerances& ignored,
    const PairReporter& reporter);

/// @return that one run calls a module more often, where the root is made of such a call: it is
/// given that very value, or is a gradient of that module.
[[nodiscard]] std::optional<RootReport> report_more_calls(const StepPair& pair,
                                                          const RootChoice& choice,
                                                          Tolerances& ignored,
                                                          const PairReporter& reporter);

}  // namespace convtrace::diff

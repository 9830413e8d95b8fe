#pragma once
/// @file one_sided_root.h
/// Roots that are no difference between two values: one run calls, passes back or clips more than
/// the other.
///
/// Place:    rank_diff.h asks these beside root.h.
/// Threads:  pure functions.
/// Source:   docs/comparison.md "Verdict".

#include <optional>

#include "tools/diff/births/last_weights.h"
#include "tools/diff/verdict/root.h"
#include "tools/trace/names/tolerance.h"

namespace convtrace::diff {

/// @param ignored  values that cannot be the root, here and below.
/// @return a root if the runs clip gradients to norms further apart than those of updates may be,
/// or only one does.
[[nodiscard]] std::optional<RootReport> report_clipping(const StepPair& pair,
                                                        const std::optional<RootChoice>& before,
                                                        Tolerances& ignored,
                                                        const PairReporter& reporter);

/// A lost gradient is not rounding, however large all other differences are.
/// @param before  the known root, if any; later gradients do not count.
/// @return the first gradient of a parameter, not 0, that only one run has, although both runs
/// called its module and went on to the optimizer.
[[nodiscard]] std::optional<RootReport> report_lost_gradient(
    const StepPair& pair, const std::optional<RootChoice>& before, Tolerances& ignored,
    const PairReporter& reporter);

/// @return a root if both runs update parameters in the step, and none that both have: these are
/// steps of two optimizers.
[[nodiscard]] std::optional<RootReport> report_other_parameters(const StepPair& pair,
                                                                const LastWeights& known,
                                                                Tolerances& ignored,
                                                                const PairReporter& reporter);

/// @return a root if one run has more backward passes in the step, and the known root comes after
/// the first such pass.
[[nodiscard]] std::optional<RootReport> report_more_passes(const StepPair& pair,
                                                           const RootChoice& choice,
                                                           Tolerances& ignored,
                                                           const PairReporter& reporter);

/// @return a root if one run calls a module more often and the root depends on such a call: it gets
/// the output of that call, or is a gradient of that module.
[[nodiscard]] std::optional<RootReport> report_more_calls(const StepPair& pair,
                                                          const RootChoice& choice,
                                                          Tolerances& ignored,
                                                          const PairReporter& reporter);

}  // namespace convtrace::diff

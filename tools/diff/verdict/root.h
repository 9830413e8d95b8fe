#pragma once
/// @file root.h
/// Finds the root of a step: the first record whose difference began in it (births.h), which is
/// neither the largest difference nor one that was passed on. Describes its surroundings.
///
/// Threads:  pure function.
/// Source:   docs/comparison.md "Verdict".

#include <cstdint>
#include <optional>

#include "tools/diff/align/lineage.h"
#include "tools/diff/compare/compare.h"
#include "tools/diff/verdict/step_pair.h"

namespace convtrace::diff {

struct RootChoice {
  uint32_t match = 0;  ///< index into Alignment::matches
  /// For changed-between: `match` is the producer.
  std::optional<ChangedBetween> changed;
};

/// @param pair  compared; consumers in `lineage.changed` already are kChangedBetween.
/// @return the first birth, or the first divergence if all were passed on; before that, a value
/// that changed between its producer and a consumer, or an op that wrote its operand.
[[nodiscard]] std::optional<RootChoice> choose_root(const StepPair& pair);

/// Notes the agreement of data, outputs, losses and gradients in the first `end` matches.
void show_before(const StepPair& pair, uint32_t end, RootReport& root);

/// @return the root with the evidence of its step; the caller adds that of earlier steps.
[[nodiscard]] RootReport report_root(const StepPair& pair, const RootChoice& choice,
                                     const PairReporter& reporter);

/// Takes the common factor of all gradients for that of the root, a loss, if the loss has it. A
/// single pair of losses always has a ratio.
void find_loss_factor(RootReport& root);

}  // namespace convtrace::diff

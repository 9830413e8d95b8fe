#pragma once
/// @file first_numbers.h
/// Whether the weights that two runs begin with are other random numbers of one kind: drawn with
/// another seed, or behind other draws.
///
/// Why it is shown: of each weight that differs the deviations agree within what the number of its
/// elements leaves to chance, and the two are as far apart as numbers that have nothing to do with each
/// other. Weights that are scaled, disturbed, rearranged or initialised by another rule are not.
///
/// Threads:  pure function.

#include <optional>
#include <span>

#include "tools/diff/align/align.h"
#include "tools/diff/shown/shown_cause.h"

namespace convtrace::diff {

/// @param matches  of the first common step.
[[nodiscard]] std::optional<ShownCause> drawn_otherwise(const StepRecords& base,
                                                        const StepRecords& cand,
                                                        std::span<const Match> matches);

}  // namespace convtrace::diff

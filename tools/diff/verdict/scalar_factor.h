#pragma once
/// @file scalar_factor.h
/// By what the candidate multiplies the scalars of one place: losses 8 times as large. A single pair
/// of numbers always has a ratio, so it says nothing; several pairs that have one ratio do.
///
/// Place:    report_root() calls this for the root. Of larger tensors compare/factor.h tells it.
/// Threads:  pure function.

#include <optional>

#include "tools/diff/verdict/step_pair.h"

namespace convtrace::diff {

/// @return nullopt if the match is no scalar, or has no other call in its step, or two of the
/// calls have other ratios, or the ratio is one.
[[nodiscard]] std::optional<ScalarFactor> scalar_factor(const StepPair& pair, uint32_t match);

}  // namespace convtrace::diff

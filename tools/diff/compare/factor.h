#pragma once
/// @file factor.h
/// Tells whether one tensor is a multiple of another, from their sketches.

#include <optional>

#include "format/model/events.h"

namespace convtrace::diff {

struct Factor {
  double value = 1;  ///< the candidate over the baseline
  double rest = 0;   ///< of the candidate, relative to its size, that is no multiple
};

/// @return nullopt if the sketches are not known, or the candidate is no multiple, or it is the
/// baseline itself within 0.1 %.
[[nodiscard]] std::optional<Factor> factor_of(const format::Stats& base, const format::Stats& cand);

}  // namespace convtrace::diff

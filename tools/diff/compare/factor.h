#pragma once
/// @file factor.h
/// Tells whether one tensor is a multiple of another, from their sketches, or from the samples of
/// small ones. Sketches are linear: that of a difference is the difference of theirs.

#include <optional>
#include <span>

#include "format/model/events.h"

namespace convtrace::diff {

struct Factor {
  double value = 1;  ///< the candidate over the baseline
  double rest = 0;   ///< the part of the candidate that is no multiple, relative to its size

  /// @return whether it is 1, within 0.1 % and the rest.
  [[nodiscard]] bool is_one() const;
};

/// @return nullopt if the sketches are not known, or one is zero, or `cand` is no multiple.
[[nodiscard]] std::optional<Factor> multiple_of(const format::Sketch& base,
                                                const format::Sketch& cand);
/// @return the sketch of a - b. Both are known.
[[nodiscard]] format::Sketch minus(const format::Sketch& a, const format::Sketch& b);

/// Of a tensor without a sketch, which has few elements, by its first ones and its norm.
/// @return nullopt also if fewer than two samples are not zero: one number has any multiple.
[[nodiscard]] std::optional<Factor> multiple_of(std::span<const double> base,
                                                std::span<const double> cand, double base_norm,
                                                double cand_norm);

/// @return nullopt if neither sketches nor samples are known, or the candidate is no multiple, or it
/// is the baseline itself within 0.1 %.
[[nodiscard]] std::optional<Factor> factor_of(const format::Stats& base, const format::Stats& cand,
                                              std::span<const double> base_samples = {},
                                              std::span<const double> cand_samples = {});

}  // namespace convtrace::diff

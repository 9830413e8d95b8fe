#pragma once
/// @file second_moment.h
/// Says which gradients are too large for an optimizer that keeps the average of their squares.
///
/// Reason: the square is infinite in the state's type, and an average stays infinite once it was.
/// Updates are divided by its root, so the parameter never moves again.
///
/// Threads:  pure functions.

#include "tools/check/model/facts.h"
#include "tools/check/model/step_values.h"

namespace convtrace::check {

enum class Overflow : uint8_t {
  kNone,
  kPossible,  ///< the square overflows, its share of the average does not: both are computed
  kCertain,   ///< the share that goes into the average overflows, too
};

/// @return what becomes of the largest element's square, where an optimizer of torch that keeps
/// squares takes the gradient. kNone where an optimizer of another kind may be the one.
[[nodiscard]] Overflow squared_overflow(const Value& gradient, const Facts& facts);
/// @return the optimizers' class without its Python module.
[[nodiscard]] std::string_view optimizer_class(const Facts& facts);

}  // namespace convtrace::check

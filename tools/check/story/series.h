#pragma once
/// @file series.h
/// Finds where a series of numbers leaves what it was, by its own changes from step to step.
///
/// Rule: a rise counts where it is more than three times the largest change before it (more where
/// few steps lie before), and doubles the number. It is a spike where the number comes back to what
/// it was. A blow-up rises in each step, to what is not finite or to the end, by more than three
/// times the largest change before.
///
/// Threads:  pure functions.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace convtrace::check {

struct Rise {
  enum class Kind : uint8_t { kSpike, kJump, kBlowUp, kNotFinite };
  Kind kind = Kind::kSpike;
  size_t at = 0;                ///< index of the first number above
  std::optional<size_t> end{};  ///< index of the first number that is back, or not finite
  double first = 0;             ///< the number there
  double before = 0;            ///< the largest of the three before it
  double most = 0;              ///< the largest finite number of the rise
};

/// @return all, in order.
[[nodiscard]] std::vector<Rise> rises_of(std::span<const double> numbers);

}  // namespace convtrace::check

#pragma once
/// @file slot.h
/// The names of a value: the role that its slot has, and the kinds of ops that matter.
///
/// Threads:  pure functions.
/// Source:   docs/recording.md "Scopes and calls".

#include <cstdint>
#include <string_view>

namespace convtrace::diff {

/// The role of a slot in the flow of values, from its text up to the colon.
enum class Role : uint8_t {
  kInput,
  kOutput,
  kGradOutput,
  kGradInput,
  kParameter,
  kGradient,
  kUnclipped,  ///< a gradient before clipping
  kLoss,
  kBuffer,
  kInitialBuffer,  ///< before the first call of its model; its bits alone are recorded
  kWritten,        ///< a parameter that the program wrote itself
  kSent,           ///< the operand of a collective, before it
  kReceived,       ///< the result of a collective
  /// Saved by an autograd node, or its gradient behind the program's hooks; recorded as a hash
  /// alone, for a later check of this run.
  kNeeded,
  // The others: is_other().
  kOther,
  kArgument,  ///< an operand of a kernel
  kState,     ///< the state of an optimizer
  kLossScale,
  kGradientNorm,    ///< the norm that a clipping function returned
  kGradientBefore,  ///< a leaf's gradient before a backward that may accumulate into it
  kGradientAfter,   ///< the same after that backward
};
[[nodiscard]] Role role_of(std::string_view slot);
[[nodiscard]] constexpr bool is_parameter_gradient(Role role) {
  return role == Role::kGradient || role == Role::kUnclipped;
}
/// @return whether the flow of a value with that role is unknown.
[[nodiscard]] constexpr bool is_other(Role role) { return role >= Role::kOther; }

/// @return the slot's text after the colon; all of it if there is none.
[[nodiscard]] constexpr std::string_view name_of(std::string_view slot) {
  return slot.substr(slot.find(':') + 1);
}
/// @return the number after the colon, 1 for "grad_output:1"; 0 if there is none.
[[nodiscard]] uint32_t number_of(std::string_view slot);

/// @return whether an op returns memory that it does not write, so that its content is arbitrary.
[[nodiscard]] bool leaves_unwritten(std::string_view op);
/// @return whether an op is a kernel that a compiler fused, as the observer names it.
[[nodiscard]] bool is_fused(std::string_view op);
/// @return whether an op is a loss, of which the observer records the labels.
[[nodiscard]] bool is_loss(std::string_view op);

}  // namespace convtrace::diff

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
enum class SlotKind : uint8_t {
  kInput,
  kOutput,
  kGradOutput,
  kGradInput,
  kParam,
  kGrad,
  kLoss,
  kBuffer,
  kInitialBuffer,  ///< before the first call of its model; its bits alone are recorded
  kWritten,        ///< a parameter that the program wrote itself (written_weights.h)
  kSent,           ///< to a collective
  kReceived,       ///< of a collective
  kNeeded,  ///< what a node of torch has saved; its bits alone are recorded, to be looked at again
  kOther
};
[[nodiscard]] SlotKind slot_kind(std::string_view slot);
/// @return whether an op returns memory that it does not write, so that its content is arbitrary.
[[nodiscard]] bool leaves_unwritten(std::string_view op);
/// @return whether an op is a kernel that a compiler fused, as the observer names it.
[[nodiscard]] bool is_fused(std::string_view op);
/// @return whether an op is a loss, of which the observer records the labels.
[[nodiscard]] bool is_loss(std::string_view op);

}  // namespace convtrace::diff

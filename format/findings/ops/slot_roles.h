#pragma once
/// @file slot_roles.h
/// The role of a record among the tensors of an op or a module, from the name of its slot.
///
/// Threads:  one.

#include <string_view>
#include <utility>
#include <vector>

#include "format/model/definitions.h"

namespace convtrace::judge {

enum class SlotRole : uint8_t {
  kNone,
  kTaken,        ///< an operand before the op
  kLeft,         ///< an operand after the op
  kLeftShared,   ///< an operand after the op, whose memory others hold as well
  kLeftBuffer,   ///< a buffer after the backward
  kLeftCounted,  ///< a buffer after the backward, whose write is counted; or known of torch's ops
  kHooked,       ///< a gradient behind the program's hooks, if others hold it
  kGiven,        ///< a result
  kKept,         ///< kept for the backward by save_for_backward
  kKeptLeaf,     ///< a kept leaf without gradient, perhaps state that the backward does not read
  kKeptBuffer,   ///< a kept buffer of the module
  kKeptOfCtx,    ///< kept as an attribute of ctx
  kState,        ///< made anew by each forward in what outlives it, read by the backward
  kStateAfter,   ///< such a tensor behind the backward
  kLent,         ///< data in memory of another owner, when the backward pass begins
  kNeeded,       ///< saved by a node of torch's own, before that node runs
  kPacked,       ///< into which a hook has packed what such a node saves
  kRunning       ///< running statistics of a module
};

/// @return whether a record in this slot is of an operand after the op.
[[nodiscard]] constexpr bool is_left(SlotRole role) {
  return role == SlotRole::kLeft || role == SlotRole::kLeftShared ||
         role == SlotRole::kLeftBuffer || role == SlotRole::kLeftCounted;
}

class SlotRoles {
 public:
  /// @param definitions  of the trace; outlive this.
  explicit SlotRoles(const format::Definitions& definitions) : definitions_(definitions) {}

  [[nodiscard]] SlotRole of(format::StringId slot) {
    if (slot.value >= roles_.size()) roles_.resize(slot.value + 1, {false, SlotRole::kNone});
    auto& [known, role] = roles_[slot.value];
    if (!std::exchange(known, true)) role = role_of(definitions_.text(slot));
    return role;
  }

 private:
  static SlotRole role_of(std::string_view slot) {
    constexpr std::pair<std::string_view, SlotRole> kRoles[] = {
        {"input", SlotRole::kTaken},
        {"grad_output", SlotRole::kTaken},
        {"input_after", SlotRole::kLeft},
        {"input_counted", SlotRole::kLeftCounted},
        {"grad_output_after", SlotRole::kLeft},
        {"grad_output_shared", SlotRole::kLeftShared},
        {"saved_after", SlotRole::kLeft},
        {"saved_shared", SlotRole::kLeftShared},
        {"grad_output_hooked", SlotRole::kHooked},
        {"output", SlotRole::kGiven},
        {"grad_input", SlotRole::kGiven},
        {"saved", SlotRole::kKept},
        {"saved_leaf", SlotRole::kKeptLeaf},
        {"saved_buffer", SlotRole::kKeptBuffer},
        {"saved_buffer_after", SlotRole::kLeftBuffer},
        {"saved_buffer_counted", SlotRole::kLeftCounted},
        {"ctx", SlotRole::kKeptOfCtx},
        {"state", SlotRole::kState},
        {"state_after", SlotRole::kStateAfter},
        {"lent", SlotRole::kLent},
        {"needed", SlotRole::kNeeded},
        {"packed", SlotRole::kPacked}};
    const std::string_view name = slot.substr(0, slot.find(':'));
    if (slot.starts_with("buffer:running_") || slot.starts_with("buffer_initial:running_"))
      return SlotRole::kRunning;
    for (const auto& [text, role] : kRoles) {
      if (text == name) return role;
    }
    return SlotRole::kNone;
  }

  const format::Definitions& definitions_;
  std::vector<std::pair<bool, SlotRole>> roles_;  ///< by slot: looked up, role
};

}  // namespace convtrace::judge

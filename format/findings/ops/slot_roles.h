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

/// kTaken: as it was before the op. kLeft: the same behind it; kLeftShared: and somebody else holds
/// its memory. kKept: for the backward, by save_for_backward; kKeptLeaf: a leaf that no gradient goes
/// to, perhaps state that the backward does not read; kKeptBuffer: a buffer of the module;
/// kKeptOfCtx: as an attribute of ctx. kState: what the backward reads of an object that outlives
/// the call, and each forward makes anew. kLeftBuffer: a buffer behind the backward; kLeftCounted: one that
/// PyTorch saw it write. kLent: data in memory of somebody else, when the backward pass begins. kNeeded:
/// what a node of torch's own has saved, before it runs. kRunning: running statistics of a module.
enum class SlotRole : uint8_t {
  kNone,
  kTaken,
  kLeft,
  kLeftShared,
  kLeftBuffer,
  kLeftCounted,
  kGiven,
  kKept,
  kKeptLeaf,
  kKeptBuffer,
  kKeptOfCtx,
  kState,
  kLent,
  kNeeded,
  kRunning
};

/// Whether a record is what an op left of an operand.
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
        {"grad_output_after", SlotRole::kLeft},
        {"grad_output_shared", SlotRole::kLeftShared},
        {"saved_after", SlotRole::kLeft},
        {"saved_shared", SlotRole::kLeftShared},
        {"output", SlotRole::kGiven},
        {"grad_input", SlotRole::kGiven},
        {"saved", SlotRole::kKept},
        {"saved_leaf", SlotRole::kKeptLeaf},
        {"saved_buffer", SlotRole::kKeptBuffer},
        {"saved_buffer_after", SlotRole::kLeftBuffer},
        {"saved_buffer_counted", SlotRole::kLeftCounted},
        {"ctx", SlotRole::kKeptOfCtx},
        {"state", SlotRole::kState},
        {"lent", SlotRole::kLent},
        {"needed", SlotRole::kNeeded}};
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

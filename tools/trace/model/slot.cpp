#include "tools/trace/model/slot.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

namespace convtrace::diff {

Role role_of(std::string_view slot) {
  constexpr std::pair<std::string_view, Role> kRoles[] = {{"input", Role::kInput},
                                                          {"output", Role::kOutput},
                                                          {"grad_output", Role::kGradOutput},
                                                          {"grad_input", Role::kGradInput},
                                                          {"param", Role::kParameter},
                                                          {"grad", Role::kGradient},
                                                          {"grad_unclipped", Role::kUnclipped},
                                                          {"loss", Role::kLoss},
                                                          {"buffer", Role::kBuffer},
                                                          {"buffer_initial", Role::kInitialBuffer},
                                                          {"param_written", Role::kWritten},
                                                          {"sent", Role::kSent},
                                                          {"received", Role::kReceived},
                                                          {"needed", Role::kNeeded},
                                                          {"grad_output_hooked", Role::kNeeded},
                                                          {"arg", Role::kArgument},
                                                          {"state", Role::kState},
                                                          {"loss_scale", Role::kLossScale},
                                                          {"grad_norm", Role::kGradientNorm},
                                                          {"grad_before", Role::kGradientBefore},
                                                          {"grad_after", Role::kGradientAfter}};
  const std::string_view word = slot.substr(0, slot.find(':'));
  for (const auto& [text, role] : kRoles) {
    if (word == text) return role;
  }
  return Role::kOther;
}

uint32_t number_of(std::string_view slot) {
  const size_t colon = slot.find(':');
  uint32_t number = 0;
  if (colon != std::string_view::npos)
    (void)std::from_chars(slot.data() + colon + 1, slot.data() + slot.size(), number);
  return number;
}

bool leaves_unwritten(std::string_view op) {
  constexpr std::string_view kOps[] = {
      "aten::empty",     "aten::empty_like",        "aten::empty_strided", "aten::empty_permuted",
      "aten::new_empty", "aten::new_empty_strided", "aten::resize_",       "aten::resize_as_"};
  const std::string_view name = op.substr(0, op.find('.'));  // without the overload
  return std::ranges::find(kOps, name) != std::end(kOps);
}

bool is_loss(std::string_view op) {
  return op.starts_with("aten::") && op.find("_loss") != std::string_view::npos;
}

bool is_fused(std::string_view op) { return op.starts_with("inductor::"); }

}  // namespace convtrace::diff

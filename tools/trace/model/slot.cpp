#include "tools/trace/model/slot.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace convtrace::diff {

SlotKind slot_kind(std::string_view slot) {
  constexpr std::pair<std::string_view, SlotKind> kKinds[] = {
      {"input", SlotKind::kInput},
      {"output", SlotKind::kOutput},
      {"grad_output", SlotKind::kGradOutput},
      {"grad_input", SlotKind::kGradInput},
      {"param", SlotKind::kParam},
      {"grad", SlotKind::kGrad},
      {"grad_unclipped", SlotKind::kGrad},
      {"loss", SlotKind::kLoss},
      {"buffer", SlotKind::kBuffer},
      {"buffer_initial", SlotKind::kInitialBuffer},
      {"param_written", SlotKind::kWritten},
      {"sent", SlotKind::kSent},
      {"received", SlotKind::kReceived},
      {"needed", SlotKind::kNeeded}};
  const std::string_view word = slot.substr(0, slot.find(':'));
  for (const auto& [text, kind] : kKinds) {
    if (word == text) return kind;
  }
  return SlotKind::kOther;
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

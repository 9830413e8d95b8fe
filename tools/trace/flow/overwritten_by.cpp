#include <algorithm>

#include "format/model/op_names.h"
#include "tools/trace/flow/made_by.h"
#include "tools/trace/flow/relations.h"

namespace convtrace::diff {
namespace {

/// @return whether the record is a result, or an operand after its op.
bool is_written(const Passed& one, std::string_view slot) {
  return one.kind == Role::kOutput || one.kind == Role::kGradInput ||
         !format::operand_before(slot).empty();
}

}  // namespace

/// The values that an op keeps for its backward (`saved:0`) were recorded after its forward, too.
/// If the backward's record has other bytes, the first call that wrote them is the maker.
std::optional<MadeBy> overwritten_by(std::span<const Passed> step, size_t result,
                                     const format::Definitions& names) {
  const std::string_view op = format::forward_name(names.text(step[result].op));
  for (size_t i = 0; i < result; ++i) {
    const Passed& kept = step[i];
    if (!is_other(kept.kind) || !is_one_call(kept, step[result])) continue;
    const auto made = std::ranges::find_if(step.first(i), [&](const Passed& one) {
      return one.slot == kept.slot && is_forward(one.place.phase) && names.text(one.op) == op &&
             one.place.scope == kept.place.scope && one.place.call == kept.place.call &&
             one.value == kept.value;
    });
    if (made == step.begin() + static_cast<std::ptrdiff_t>(i) || has_same_bytes(*made, kept))
      continue;
    const std::span<const Passed> between(made, step.begin() + static_cast<std::ptrdiff_t>(i));
    const auto writer = std::ranges::find_if(between, [&](const Passed& one) {
      return is_same_memory(one, kept) && has_same_bytes(one, kept);
    });
    if (writer == between.end() || !is_written(*writer, names.text(writer->slot))) continue;
    const std::string_view text = names.text(writer->slot);
    const std::string operand = format::operand_before(text);
    const std::string slot = operand.empty() ? std::string(text) : operand;
    return MadeBy{
        .how = HowKnown::kOverwrote,
        .receiver = maker_of(step[result], names, std::string(names.text(step[result].slot))),
        .makers = {maker_of(*writer, names, slot)}};
  }
  return std::nullopt;
}

}  // namespace convtrace::diff

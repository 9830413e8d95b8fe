#include "tools/check/values/compiled_calls.h"

#include <string_view>

#include "tools/trace/model/generated_call.h"
#include "tools/trace/model/slot.h"

namespace convtrace::check {
namespace {

constexpr uint64_t kLeastElements = 16;

std::string place_of(const format::Definitions& names, const CallKey& key) {
  return std::string(names.text(key.scope)) + '.' + std::string(names.text(key.op));
}

/// @return the part of a list up to a separator, which is taken off.
std::string_view next_part(std::string_view& list, char separator) {
  const size_t end = std::min(list.find(separator), list.size());
  const std::string_view part = list.substr(0, end);
  list.remove_prefix(std::min(end + 1, list.size()));
  return part;
}

}  // namespace

std::vector<KernelCall> kernel_calls(const StepValues& step, const format::Definitions& names) {
  std::vector<KernelCall> calls;
  std::map<CallKey, uint32_t> counts;
  const auto is_operand = [](const Value& value) {
    return value.role == Role::kInput || value.role == Role::kOutput;
  };
  for (const Value& value : step.values) {
    if (!is_operand(value) || !value.op || !diff::is_fused(names.text(value.op))) continue;
    const CallKey key{value.place.scope, value.op, value.place.phase, value.place.call};
    const bool is_input = value.role == Role::kInput;
    const bool goes_on =
        !calls.empty() && calls.back().key == key && !(is_input && !calls.back().outputs.empty());
    if (!goes_on) calls.push_back({.occurrence = counts[key]++, .key = key});
    (is_input ? calls.back().inputs : calls.back().outputs).push_back(&value);
  }
  return calls;
}

std::map<std::string, std::vector<std::string>, std::less<>> made_of(
    const Facts& facts, const format::Definitions& names, const KernelCall& call) {
  std::map<std::string, std::vector<std::string>, std::less<>> made;
  std::string_view rest = facts.of_program("compiled_made." + place_of(names, call.key));
  while (!rest.empty()) {
    std::string_view one = next_part(rest, ';');
    auto& inputs = made[std::string(next_part(one, '<'))];
    while (!one.empty()) inputs.emplace_back(next_part(one, ','));
  }
  return made;
}

bool tells_writes(const Value& value) {
  const bool wide = value.dtype == format::DType::kF32 || value.dtype == format::DType::kF64;
  return wide && value.finite() && !value.constant() && value.stats.count >= kLeastElements;
}

std::string kernel_text(const Facts& facts, const format::Definitions& names, const CallKey& key) {
  const diff::GeneratedCall call =
      diff::generated_call(facts.of_program("compiled." + place_of(names, key)));
  std::string text = call.kernel.empty() ? std::string(names.text(key.op)) : call.kernel;
  text += " of " + module_name(names, key.scope);
  if (!call.region.empty()) text += ", region " + call.region;
  return text;
}

}  // namespace convtrace::check

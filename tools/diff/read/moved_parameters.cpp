#include "tools/diff/read/moved_parameters.h"

#include <string>

namespace convtrace::diff {

const std::optional<MovedParameters::Name>& MovedParameters::of(const ValueRecord& record) {
  const auto [entry, is_new] = known_.try_emplace(parameter_key(record));
  if (!is_new) return entry->second;
  std::string name(names_.text(record.key.scope));
  name += '.';
  name += names_.text(record.tensor);
  const auto other = path_in_base(name, rules_);
  const size_t dot = other ? other->rfind('.') : std::string::npos;
  if (dot != std::string::npos) {
    entry->second = {names_.intern(other->substr(0, dot)), names_.intern(other->substr(dot + 1))};
    hollow_.insert(entry->second->scope.value);
    find_holders(names_.text(record.key.scope), other->substr(0, dot));
  }
  return entry->second;
}

void MovedParameters::find_holders(std::string_view path, std::string_view goes_to) {
  while (!path.empty() && !is_inside(goes_to, path)) {
    holders_.insert(names_.intern(path).value);
    path = path.substr(0, path.find('.') == path.npos ? 0 : path.rfind('.'));
  }
}

void MovedParameters::apply(StepRecords& step) {
  if (rules_.empty()) return;
  const auto move = [this](ValueRecord& record) {
    const std::optional<Name>& name = of(record);
    if (!name) return;
    const std::string_view slot = names_.text(record.key.slot);
    std::string moved(slot.substr(0, slot.find(':') + 1));
    moved += names_.text(name->tensor);
    record.key.scope = name->scope;
    record.key.slot = names_.intern(moved);
    record.tensor = name->tensor;
  };
  for (ValueRecord& record : step.values)
    if (record.kind == Role::kParameter || is_parameter_gradient(record.kind)) move(record);
  for (ValueRecord& record : step.written) move(record);
  std::unordered_set<uint64_t> passed;  // hashes of values that hollow modules pass on
  const auto is_passed = [&](const ValueRecord& record) {
    const bool is_own = record.kind == Role::kOutput || record.kind == Role::kGradOutput;
    return is_own && hollow_.contains(record.key.scope.value);
  };
  for (const ValueRecord& record : step.values)
    if (is_passed(record)) passed.insert(record.stats.hash);
  std::erase_if(step.values, [&](const ValueRecord& record) {
    const bool is_taken = record.kind == Role::kInput || record.kind == Role::kGradInput;
    return is_passed(record) || (is_taken && holders_.contains(record.key.scope.value) &&
                                 passed.contains(record.stats.hash));
  });
}

}  // namespace convtrace::diff

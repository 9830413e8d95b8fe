#include "interposer/engine/live_judge.h"

#include <algorithm>

#include "cupti/kernel_name.h"
#include "format/judge/finding_text.h"

namespace convtrace::engine {

std::span<const format::Finding> LiveJudge::see(const format::Event& event) {
  found_.clear();
  judge_.see(event, found_);
  if (found_.empty()) return {};
  make_records();
  return records_;
}

void LiveJudge::make_records() {
  messages_.clear();
  records_.clear();
  for (const judge::MemoryFinding& finding : found_)
    messages_.push_back(judge::describe(finding, definitions_));
  for (size_t i = 0; i < found_.size(); ++i) {
    format::Finding& record = records_.emplace_back(judge::record_of(found_[i], messages_[i]));
    if (!record.slot) record.slot = definitions_.intern(judge::slot_text(found_[i]));
    record.suppressed = suppressed(found_[i]);
  }
}

/// By a rule for its scope, or for its kernel in its scope.
bool LiveJudge::suppressed(const judge::MemoryFinding& finding) {
  if (rules_.empty()) return false;
  const format::StringId scope = finding.place.scope;
  const std::string_view scope_name = definitions_.text(scope);
  const std::string name(definitions_.text(definitions_.kernel(finding.kernel).name));
  const std::string demangled = cupti::demangle(name);
  const std::string names[] = {demangled, name, cupti::kernel_family(demangled)};
  const auto silences = [&](const settings::Rule* rule, bool meets) {
    if (!meets || !rule->suppress) return false;
    rules_.used(*rule);
    return true;
  };
  return std::ranges::any_of(rules_.of_kernel(names),
                             [&](const settings::Rule* rule) {
                               return silences(rule,
                                               rules_.in_scope(*rule, scope.value, scope_name));
                             }) ||
         std::ranges::any_of(
             rules_.of_scope(scope.value, scope_name),
             [&](const settings::Rule* rule) { return silences(rule, !rule->kernel); });
}

}  // namespace convtrace::engine

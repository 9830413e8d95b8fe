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

/// By a rule for its scope, or for its kernel in its scope; who reads a stale value did nothing
/// wrong, so there a rule for the scope that made it counts as well.
bool LiveJudge::suppressed(const judge::MemoryFinding& finding) {
  if (rules_.empty()) return false;
  if (finding.kind != format::FindingKind::kStaleRead) {
    return silenced_in(finding.place.scope) || silenced_kernel(finding);
  }
  return silenced_in(finding.place.scope) || silenced_in(finding.made.place.scope);
}

bool LiveJudge::silenced_in(format::StringId scope) {
  return std::ranges::any_of(
      rules_.of_scope(scope.value, definitions_.text(scope)),
      [this](const settings::Rule* rule) { return !rule->kernel && silences(*rule); });
}

bool LiveJudge::silenced_kernel(const judge::MemoryFinding& finding) {
  const format::StringId scope = finding.place.scope;
  const std::string name(definitions_.text(definitions_.kernel(finding.kernel).name));
  const std::string demangled = cupti::demangle(name);
  const std::string names[] = {demangled, name, cupti::kernel_family(demangled)};
  return std::ranges::any_of(rules_.of_kernel(names), [&](const settings::Rule* rule) {
    return rules_.in_scope(*rule, scope.value, definitions_.text(scope)) && silences(*rule);
  });
}

bool LiveJudge::silences(const settings::Rule& rule) {
  if (!rule.suppress) return false;
  rules_.used(rule);
  return true;
}

}  // namespace convtrace::engine

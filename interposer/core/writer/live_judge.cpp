#include "interposer/core/writer/live_judge.h"

#include <algorithm>
#include <string>

#include "cupti/kernels/kernel_name.h"

namespace convtrace::engine {

std::span<const format::Finding> LiveJudge::see(const format::Event& event) {
  const std::span<judge::Verdict> verdicts = judge_.see(event);
  if (verdicts.empty()) return {};
  records_.clear();
  for (const judge::Verdict& verdict : verdicts) {
    format::Finding& record = records_.emplace_back(verdict.record);
    if (!record.slot) record.slot = definitions_.intern(verdict.slot);
    record.suppressed = suppressed(verdict);
  }
  return records_;
}

/// @return whether a rule suppresses the finding: one for its scope, or for its kernel in its scope.
/// The reader of a stale value did nothing wrong, so a rule for the scope that made the value counts
/// as well.
bool LiveJudge::suppressed(const judge::Verdict& verdict) {
  if (rules_.empty()) return false;
  const format::Finding& finding = verdict.record;
  return silenced_in(finding.place.scope, finding) || silenced_in(verdict.maker_scope, finding) ||
         (finding.kernel && silenced_kernel(finding));
}

bool LiveJudge::silenced_in(format::StringId scope, const format::Finding& finding) {
  return std::ranges::any_of(
      rules_.of_scope(scope.value, definitions_.text(scope)),
      [&](const settings::Rule* rule) { return !rule->kernel && silences(*rule, finding); });
}

bool LiveJudge::silenced_kernel(const format::Finding& finding) {
  const format::StringId scope = finding.place.scope;
  const std::string name(definitions_.text(definitions_.kernel(finding.kernel).name));
  const std::string demangled = cupti::demangle(name);
  const std::string names[] = {demangled, name, cupti::kernel_family(demangled)};
  return std::ranges::any_of(rules_.of_kernel(names), [&](const settings::Rule* rule) {
    return rules_.in_scope(*rule, scope.value, definitions_.text(scope)) &&
           silences(*rule, finding);
  });
}

/// A rule may declare that an op writes its inputs and returns them, but not that memory is freed
/// under its output.
bool LiveJudge::silences(const settings::Rule& rule, const format::Finding& finding) {
  using Kind = format::FindingKind;
  const bool in_place = finding.kind == Kind::kInputMutated ||
                        finding.kind == Kind::kAutotuneMutation ||
                        finding.kind == Kind::kOutputAliasesInput;
  if (!rule.suppress && !(rule.inplace && in_place)) return false;
  rules_.used(rule);
  return true;
}

}  // namespace convtrace::engine

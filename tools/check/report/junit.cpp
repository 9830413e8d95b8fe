#include <algorithm>
#include <string>

#include "tools/check/report/reports.h"
#include "tools/common/escape.h"
#include "tools/report/junit.h"

namespace convtrace::check {

using tools::escape_text;

void write_junit(const CheckResult& result, std::ostream& out) {
  std::vector<report::JunitCase> cases;
  for (const Looked& one : result.looked)
    cases.push_back({.name = std::string(one.id) + ": " + escape_text(one.what),
                     .skipped = one.times != 0 ? "" : "the run has nothing that it could judge"});
  for (const Finding& finding : result.findings) {
    if (finding.severity == Severity::kHint) continue;
    const std::string id = std::string(finding.id) + ": ";
    auto known = std::ranges::find_if(
        cases, [&](const report::JunitCase& one) { return one.name.starts_with(id); });
    if (known == cases.end()) known = cases.insert(known, {.name = id + "use of memory"});
    if (!known->failure.empty()) continue;  // that one is worse
    known->failure = place_of(finding) + ": " + escape_text(finding.text);
    for (const std::string& line : finding.evidence) known->details += escape_text(line) + "\n";
  }
  report::write_junit("convtrace check", "convtrace-check", cases, out);
}

}  // namespace convtrace::check

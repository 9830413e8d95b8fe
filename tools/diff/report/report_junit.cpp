#include "tools/diff/report/reports.h"

#include <string>
#include <vector>

#include "tools/diff/report/report_parts.h"
#include "tools/report/junit.h"

namespace convtrace::diff {
namespace {

using Case = report::JunitCase;

Case rank_case(const RankReport& rank) {
  Case test{.name = "rank " + std::to_string(rank.rank) + ": values agree"};
  if (!rank.root) return test;
  const RecordReport& record = rank.root->record;
  test.failure =
      place_text(record, true) + ": " + object_text(record) + ": " + root_sentence(*rank.root);
  const std::string maker = maker_line(*rank.root);
  if (!maker.empty()) test.failure += "; made by " + maker;
  test.details = tolerance_text(shown_difference(*rank.root));
  return test;
}

Case findings_case(const std::string& run, const Findings& findings, bool in_cand) {
  Case test{.name = run + ": no error-level findings"};
  if (findings.errors == 0) return test;
  test.failure = std::to_string(findings.errors) + " error-level findings";
  for (const FindingReport& finding : findings.list) {
    if (finding.level != format::Level::kError || finding.suppressed) continue;
    test.details += finding_title(finding, in_cand) + '\n';
  }
  return test;
}

}  // namespace

void write_junit_report(const DiffResult& result, std::ostream& out) {
  std::vector<Case> cases;
  const bool is_open =
      result.verdict == Verdict::kIncomplete || result.verdict == Verdict::kCannotTell;
  cases.push_back({.name = "the runs can be compared",
                   .failure = is_open ? headline(result) : result.why_not_comparable});
  for (const RankReport& rank : result.ranks) cases.push_back(rank_case(rank));
  cases.push_back(findings_case("baseline", result.base_findings, false));
  cases.push_back(findings_case("candidate", result.cand_findings, true));
  report::write_junit("convtrace-diff", "convtrace-diff", cases, out);
}

}  // namespace convtrace::diff

#include <algorithm>
#include <string>

#include "tools/check/report/reports.h"
#include "tools/common/escape.h"

namespace convtrace::check {
namespace {

using tools::escape_markup;

struct Case {
  std::string_view id, what;
  const Finding* failure = nullptr;  ///< the worst
  bool judged = true;
};

}  // namespace

void write_junit(const CheckResult& result, std::ostream& out) {
  std::vector<Case> cases;
  for (const Looked& one : result.looked)
    cases.push_back({.id = one.id, .what = one.what, .judged = one.times != 0});
  for (const Finding& finding : result.findings) {
    if (finding.severity == Severity::kHint) continue;
    const auto known = std::ranges::find(cases, finding.id, &Case::id);
    if (known == cases.end()) {
      cases.push_back({.id = finding.id, .what = "use of memory", .failure = &finding});
    } else if (known->failure == nullptr) {
      known->failure = &finding;
    }
  }
  size_t failures = 0, skipped = 0;
  for (const Case& test : cases) {
    failures += test.failure != nullptr ? 1 : 0;
    skipped += test.failure == nullptr && !test.judged ? 1 : 0;
  }
  out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"convtrace check\" tests=\""
      << cases.size() << "\" failures=\"" << failures << "\" skipped=\"" << skipped << "\">\n";
  for (const Case& test : cases) {
    out << "  <testcase classname=\"convtrace-check\" name=\"" << test.id << ": "
        << escape_markup(test.what);
    if (test.failure != nullptr) {
      out << "\">\n    <failure message=\"" << tools::quote_markup(place_of(*test.failure)) << ": "
          << escape_markup(test.failure->text) << "\">";
      for (const std::string& line : test.failure->evidence) out << escape_markup(line) << "\n";
      out << "</failure>\n  </testcase>\n";
    } else if (!test.judged) {
      out << "\">\n    <skipped message=\"the run has nothing that it could judge\"/>\n  "
             "</testcase>\n";
    } else {
      out << "\"/>\n";
    }
  }
  out << "</testsuite>\n";
}

}  // namespace convtrace::check

#include "tools/report/junit.h"

#include <algorithm>

#include "tools/common/escape.h"

namespace convtrace::report {

using tools::quote_markup;

void write_junit(std::string_view suite, std::string_view class_name,
                 const std::vector<JunitCase>& cases, std::ostream& out) {
  const auto failed = [](const JunitCase& one) { return !one.failure.empty(); };
  const auto skipped = [](const JunitCase& one) {
    return one.failure.empty() && !one.skipped.empty();
  };
  out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"" << suite << "\" tests=\""
      << cases.size() << "\" failures=\"" << std::ranges::count_if(cases, failed) << "\" skipped=\""
      << std::ranges::count_if(cases, skipped) << "\">\n";
  for (const JunitCase& one : cases) {
    out << "  <testcase classname=\"" << class_name << "\" name=\"" << quote_markup(one.name);
    if (failed(one)) {
      out << "\">\n    <failure message=\"" << quote_markup(one.failure) << "\">"
          << quote_markup(one.details) << "</failure>\n  </testcase>\n";
    } else if (skipped(one)) {
      out << "\">\n    <skipped message=\"" << quote_markup(one.skipped) << "\"/>\n  </testcase>\n";
    } else {
      out << "\"/>\n";
    }
  }
  out << "</testsuite>\n";
}

}  // namespace convtrace::report

#include <string>

#include "tools/check/report/reports.h"
#include "tools/check/report/story_text.h"
#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/report/markup.h"

namespace convtrace::check {
namespace {

using tools::escape_markup;
using tools::quote_markup;

void write_advice(const Finding& finding, diff::Markup& out) {
  out.paragraph("Usual cause: " + escape_markup(finding.cause) + ".");
  out.paragraph("Next: " + escape_markup(finding.next) + ".");
}

/// The worst finding, so that the first screen answers what, where, why and what next.
void write_lead(const Finding& finding, diff::Markup& out) {
  out << "<div class=\"card\">\n";
  out.paragraph("<b>" + escape_markup(finding.text) + "</b> <code>" +
                quote_markup(place_of(finding)) + "</code>");
  write_advice(finding, out);
  out << "</div>\n";
}

void write_finding(const Finding& finding, diff::Markup& out) {
  const std::string level(to_string(finding.severity));
  out.begin_found(level, level + " " + escape_markup(finding.id), quote_markup(place_of(finding)),
                  finding.text, finding.times, finding.evidence);
  write_advice(finding, out);
  out << "</section>\n";
}

}  // namespace

void write_html(const CheckResult& result, std::ostream& stream) {
  diff::Markup out(stream);
  const std::string title = quote_markup(headline(result));
  const bool clean = result.count(Severity::kError) + result.count(Severity::kWarning) == 0;
  out.begin_report("convtrace check", title, diff::kPageStyle, clean, result.paths,
                   result.incomplete);
  for (const std::string& note : result.notes) out.paragraph(escape_markup(note));
  if (!result.findings.empty()) write_lead(result.findings.front(), out);
  out << "</header>\n<main>\n";
  write_story(result, out);
  if (!result.findings.empty()) out.heading("Findings, worst first", "findings");
  for (const Finding& finding : result.findings) write_finding(finding, out);
  out.heading("What was judged", "judged");
  out.begin_table("checks", {"check", "what it looks for", "judged"});
  for (const Looked& one : result.looked)
    out << "<tr><th scope=\"row\">" << one.id << "</th><td>" << escape_markup(one.what)
        << "</td><td>"
        << (one.times == 0 ? std::string("not known: nothing to judge")
                           : tools::counted(one.times, "time"))
        << "</td></tr>\n";
  out.end_table();
  out << "</main></body></html>\n";
}

}  // namespace convtrace::check

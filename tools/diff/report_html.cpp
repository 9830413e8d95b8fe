#include "tools/diff/report_html.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/diff/next_commands.h"
#include "tools/diff/report_parts.h"

namespace convtrace::diff {
namespace {

using tools::escape_markup;
using tools::quote_markup;

constexpr std::string_view kHead =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "style-src 'unsafe-inline'\">\n<title>convtrace-diff</title>\n<style>\n"
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;"
    "color:#1b1f24;background:#fff}\n"
    "h1{font-size:1.35rem}h2{font-size:1.1rem;margin-top:2rem}\n"
    ".same{color:#1a7f37}.diverged,.not-comparable,.findings{color:#b42318}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}\n"
    "td,th{border:1px solid #d0d7de;padding:.2rem .6rem;text-align:left}\n"
    "tr.differs td{background:#fff8e6}tr.root td{background:#ffe5e3;font-weight:600}\n"
    "pre{background:#f6f8fa;padding:.8rem;overflow:auto}\n"
    "details{margin:.3rem 0}details details,details p{margin-left:1rem}\n"
    "@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}"
    "td,th{border-color:#30363d}tr.differs td{background:#3a2d00}"
    "tr.root td{background:#4a1513}pre{background:#161b22}"
    ".same{color:#3fb950}.diverged,.not-comparable,.findings{color:#ff7b72}}\n"
    "</style></head><body>\n";

constexpr size_t kFindingsShown = 200;

/// Texts of report_parts.h already are safe: only their markup is quoted here.
class HtmlReport {
 public:
  HtmlReport(const DiffResult& result, std::ostream& out) : result_(result), out_(out) {}

  void write() {
    out_ << kHead << "<h1 class=\"" << to_string(result_.verdict) << "\">"
         << quote_markup(headline(result_)) << "</h1>\n<p>" << escape_markup(result_.base_path)
         << " against " << escape_markup(result_.cand_path) << "</p>\n<p>Compared "
         << quote_markup(compared_text(result_)) << ".</p>\n";
    for (const std::string& why : result_.incomplete) paragraph("Incomplete: " + quote_markup(why));
    if (result_.cause) {
      out_ << "<h2>Probable cause</h2>\n";
      paragraph("<b>" +
                quote_markup(finding_title(result_.cause->finding, result_.cause->in_cand)) +
                "</b>");
      finding_body(result_.cause->finding);
    }
    if (result_.root) root(*result_.root);
    first_bit_difference();
    preflight();
    findings();
    out_ << "</body></html>\n";
  }

 private:
  void paragraph(const std::string& html) {
    if (!html.empty()) out_ << "<p>" << html << "</p>\n";
  }

  void root(const RootReport& root) {
    out_ << "<h2>Root</h2>\n";
    paragraph(quote_markup(root_sentence(root)));
    paragraph(quote_markup(place_text(root.record, true)) + "<br>" +
              quote_markup(object_text(root.record)) + ", " + quote_markup(type_text(root.record)) +
              "<br>class " + std::string(to_string(root.record.comparison.verdict)) + "<br>" +
              tools::counted(root.matched_before, "value") + " before it matched");
    paragraph(quote_markup(one_sided_text(root)));
    table(root.record);
    if (root.consumer) {
      paragraph("As seen by " + quote_markup(place_text(*root.consumer, false)) + ", " +
                quote_markup(object_text(*root.consumer)) + ":");
      table(*root.consumer);
    }
    if (root.effect) {
      paragraph("First values that suffered: " + quote_markup(place_text(*root.effect, false)) +
                ", " + quote_markup(object_text(*root.effect)) + ":");
      table(*root.effect);
    }
    paragraph(quote_markup(tolerance_text(shown_difference(root))));
    paragraph(quote_markup(rounding_hint(root, result_.noise_given)));
    around(root);
    out_ << "<h2>Next</h2>\n<pre>";
    for (const std::string& line : next_commands(result_)) out_ << quote_markup(line) << "\n";
    out_ << "</pre>\n";
  }

  void table(const RecordReport& record) {
    out_ << "<table><tr><th></th><th>baseline</th><th>candidate</th></tr>\n";
    for (const StatRow& row : stat_rows(record)) {
      out_ << (row.base == row.cand ? "<tr>" : "<tr class=\"differs\">") << "<td>" << row.name
           << "</td><td>" << quote_markup(row.base) << "</td><td>" << quote_markup(row.cand)
           << "</td></tr>\n";
    }
    out_ << "</table>\n";
    for (const std::string& text : element_lines(record)) paragraph(quote_markup(text));
  }

  void around(const RootReport& root) {
    out_ << "<h2>Values around the root</h2>\n<table><tr><th>place</th><th>value</th>"
            "<th>class</th><th>largest difference</th></tr>\n";
    for (size_t i = 0; i < root.around.size(); ++i) {
      const RecordReport& record = root.around[i];
      const Comparison& c = record.comparison;
      out_ << (i == root.around_root ? "<tr class=\"root\">" : "<tr>") << "<td>"
           << quote_markup(place_text(record, false)) << "</td><td>"
           << quote_markup(object_text(record)) << "</td><td>" << to_string(c.verdict)
           << "</td><td>";
      if (c.bits_differ && !std::isnan(c.difference)) {
        out_ << tools::number_text(c.difference) << " in " << to_string(c.field);
      }
      out_ << "</td></tr>\n";
    }
    out_ << "</table>\n";
  }

  void first_bit_difference() {
    if (!result_.first_bit_difference) return;
    const RecordReport& record = result_.first_bit_difference->record;
    out_ << "<h2>First bit difference</h2>\n";
    paragraph(quote_markup(place_text(record, true)) + ", " + quote_markup(object_text(record)) +
              " (" + std::string(to_string(record.comparison.verdict)) + ")");
  }

  void preflight() {
    if (result_.preflight.empty()) return;
    out_ << "<h2>The runs differ in</h2>\n<table><tr><th></th><th>baseline</th><th>candidate</th>"
            "</tr>\n";
    for (const PreflightEntry& entry : result_.preflight) {
      out_ << "<tr><td>" << escape_markup(entry.name) << "</td><td>"
           << escape_markup(entry.base.value_or("(none)")) << "</td><td>"
           << escape_markup(entry.cand.value_or("(none)")) << "</td></tr>\n";
    }
    out_ << "</table>\n";
  }

  void findings() {
    if (result_.base_findings.list.empty() && result_.cand_findings.list.empty()) return;
    out_ << "<h2>Findings</h2>\n";
    finding_list(result_.base_findings, false);
    finding_list(result_.cand_findings, true);
  }

  void finding_list(const Findings& findings, bool in_cand) {
    const size_t shown = std::min(kFindingsShown, findings.list.size());
    for (size_t i = 0; i < shown; ++i) finding(findings.list[i], in_cand);
    if (shown < findings.count) {
      paragraph("and " + tools::counted(findings.count - shown, "more finding") + " in the " +
                (in_cand ? "candidate" : "baseline"));
    }
  }

  void finding(const FindingReport& finding, bool in_cand) {
    out_ << "<details><summary>" << quote_markup(finding_title(finding, in_cand)) << "</summary>\n";
    finding_body(finding);
    out_ << "</details>\n";
  }

  void finding_body(const FindingReport& finding) {
    paragraph(escape_markup(finding.message));
    stack("allocated", finding.alloc_stack);
    stack("launched", finding.launch_stack);
    stack("freed", finding.free_stack);
  }

  void stack(const char* what, const std::vector<std::string>& frames) {
    if (frames.empty()) return;
    out_ << "<details><summary>" << what << " in " << escape_markup(frames.front())
         << "</summary><pre>";
    for (const std::string& frame : frames) out_ << escape_markup(frame) << "\n";
    out_ << "</pre></details>\n";
  }

  const DiffResult& result_;
  std::ostream& out_;
};

}  // namespace

void write_html_report(const DiffResult& result, std::ostream& out) {
  HtmlReport(result, out).write();
}

}  // namespace convtrace::diff

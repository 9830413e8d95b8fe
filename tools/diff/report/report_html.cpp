#include "tools/diff/report/report_html.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/diff/report/determinism.h"
#include "tools/diff/report/next_commands.h"
#include "tools/diff/report/page_assets.h"
#include "tools/diff/report/report_json.h"
#include "tools/diff/report/report_parts.h"
#include "tools/diff/verdict/finding_stories.h"

namespace convtrace::diff {
namespace {

using tools::escape_markup;
using tools::quote_markup;

constexpr std::string_view kHead =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>convtrace-diff</title>\n";

constexpr std::string_view kCharts =
    "<svg id=\"empty\" hidden></svg>\n<h2>Over the steps</h2>\n<div class=\"charts\"><figure "
    "id=\"loss\"></figure>"
    "<figure id=\"norm\"></figure></div>\n"
    "<h2>Modules and steps</h2>\n<p id=\"legend\" class=\"legend\"></p>\n"
    "<div id=\"map\"><canvas id=\"heat\" tabindex=\"0\" role=\"img\" aria-label=\"worst class of "
    "each module in each step; arrow keys read it\"></canvas></div>\n"
    "<p id=\"cell\" aria-live=\"polite\"></p>\n"
    "<h2 class=\"screen\">Every value</h2>\n<p class=\"screen\"><label>find <input id=\"filter\" "
    "type=\"search\" "
    "placeholder=\"module, slot, op\"></label><label>at least <select id=\"least\">";

constexpr std::string_view kListing =
    "</select></label><label>plot <select id=\"field\"><option>mean<option>std<option>l2</select>"
    "</label><span id=\"matches\" aria-live=\"polite\"></span></p>\n"
    "<div class=\"charts\"><figure id=\"tensor\"></figure></div>\n"
    "<div id=\"list\" tabindex=\"0\" role=\"listbox\" aria-label=\"compared values\"></div>\n";

constexpr size_t kStoriesShown = 200;

/// Texts of report_parts.h are escaped for a terminal; only markup is escaped here.
class HtmlReport {
 public:
  HtmlReport(const DiffResult& result, const PageRows& rows, std::ostream& out)
      : result_(result), rows_(rows), out_(out) {}

  void write() {
    out_ << kHead << "<style>" << kPageStyle << "</style></head><body>\n<h1 class=\""
         << to_string(result_.verdict) << "\">" << quote_markup(headline(result_)) << "</h1>\n<p>"
         << escape_markup(result_.base_path) << " against " << escape_markup(result_.cand_path)
         << "</p>\n<p>Compared " << quote_markup(compared_text(result_)) << ".</p>\n";
    for (const std::string& text : advice(result_)) paragraph(quote_markup(text));
    paragraph(quote_markup(phase_text(result_)));
    for (const std::string& text : rounding_lines(result_))
      paragraph("Rounding: " + quote_markup(text) + ".");
    paragraph(quote_markup(renamed_text(result_)));
    paragraph(quote_markup(step_offset_text(result_.step_offset)));
    ranks();
    for (const std::string& text : replica_lines(result_)) paragraph("Replicas: " + text);
    for (const std::string& text : one_sided_lines(result_))
      paragraph("One-sided: " + quote_markup(text));
    for (const std::string& text : other_form_lines(result_))
      paragraph("Other form: " + quote_markup(text));
    paragraph(quote_markup(waived_text(result_)));
    for (const std::string& text : alias_lines(result_))
      paragraph("Aliasing: " + escape_markup(text));
    for (const std::string& why : result_.incomplete)
      paragraph("Incomplete: " + escape_markup(why));
    differences();
    if (result_.cause) {
      out_ << "<h2>Probable cause</h2>\n";
      paragraph("<b>" +
                quote_markup(finding_title(result_.cause->finding, result_.cause->in_cand)) +
                "</b>");
      finding_body(result_.cause->finding);
      rest(rest_of_story(result_.cause->in_cand ? result_.cand_findings : result_.base_findings,
                         result_.cause->index));
    }
    if (result_.root) root(*result_.root);
    first_bit_difference();
    charts();
    findings();
    facts();
    preflight();
    script();
    out_ << "</body></html>\n";
  }

 private:
  /// The first screen says that there is something to read further below.
  void differences() {
    constexpr size_t kNamed = 3;
    const auto& entries = result_.preflight;
    std::string text;
    for (size_t i = 0; i < entries.size() && i < kNamed; ++i) {
      text += (i == 0 ? "" : ", ") + escape_markup(entries[i].name);
    }
    if (entries.size() > kNamed)
      text += ", and " + std::to_string(entries.size() - kNamed) + " more";
    if (!text.empty()) paragraph("<a href=\"#differ\">The runs differ in</a> " + text + ".");
    for (size_t i = 0; i < result_.facts.size() && i < kNamed; ++i) {
      paragraph("<a href=\"#facts\">The programs differ</a>: " +
                escape_markup(fact_text(result_.facts[i])));
    }
  }

  void ranks() {
    const std::vector<std::string> lines = rank_lines(result_);
    if (lines.empty()) return;
    out_ << "<p>Ranks: ";
    for (size_t i = 0; i < lines.size(); ++i)
      out_ << (i == 0 ? "" : "<br>") << quote_markup(lines[i]);
    out_ << "</p>\n";
  }

  void charts() {
    out_ << kCharts;
    for (size_t i = 0; i < kClassCount; ++i) {
      out_ << "<option value=\"" << i << "\">" << to_string(static_cast<Class>(i));
    }
    out_ << kListing;
  }

  void script() {
    tools::Json data = rows_.json();
    data["per_step"] = per_step_json(result_);
    data["ranks"] = result_.ranks.size();
    // Inside a script element nothing is escaped, but it ends at "</script": no "<" is left.
    std::string text = tools::dump_json(data);
    for (size_t at = text.find('<'); at != text.npos; at = text.find('<', at)) {
      text.replace(at, 1, "\\u003c");
    }
    out_ << "<script type=\"application/json\" id=\"data\">" << text << "</script>\n<script>"
         << kPageScript << "</script>\n";
  }

  void paragraph(const std::string& html) {
    if (!html.empty()) out_ << "<p>" << html << "</p>\n";
  }

  void root(const RootReport& root) {
    out_ << "<h2>Root</h2>\n";
    paragraph(quote_markup(root_sentence(root)));
    paragraph(escape_markup(code_text(root.code)));
    if (!root.has_values()) return;
    paragraph(quote_markup(place_text(root.record, true)) + "<br>" +
              quote_markup(object_text(root.record)) + ", " + quote_markup(type_text(root.record)) +
              "<br>class " + std::string(to_string(root.record.comparison.verdict)) +
              "; matched by " + quote_markup(match_text(root.record)) + "<br>" +
              "before it: " + quote_markup(before_text(result_)));
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
    paragraph(quote_markup(factor_text(shown_difference(root))));
    paragraph(quote_markup(rounding_hint(result_)));
    next();
    gradients(root);
    around(root);
  }

  void next() {
    const std::vector<std::string> commands = next_commands(result_);
    if (commands.empty()) return;
    out_ << "<h2>Next</h2>\n<p>Store these values in both runs, and compare them element by "
            "element:</p>\n<pre>";
    for (const std::string& line : commands) out_ << quote_markup(line) << "\n";
    out_ << "</pre>\n";
  }

  void table(const RecordReport& record) {
    out_ << "<div class=\"scroll\"><table><tr><th></th><th>baseline</th><th>candidate</th></tr>\n";
    for (const StatRow& row : stat_rows(record)) {
      out_ << "<tr class=\"" << (row.base == row.cand ? "" : "differs ")
           << (row.deciding ? "decides" : "") << "\"><td>" << row.name << "</td><td>"
           << quote_markup(row.base) << "</td><td>" << quote_markup(row.cand) << "</td></tr>\n";
    }
    out_ << "</table></div>\n";
    for (const std::string& text : element_lines(record)) paragraph(quote_markup(text));
  }

  void gradients(const RootReport& root) {
    if (root.gradients.empty()) return;
    out_ << "<details class=\"long\"><summary>Norms of the gradients that differ in this "
            "step</summary>"
            "<div class=\"scroll\"><table><tr><th>weight</th><th>baseline</th><th>candidate</th>"
            "<th>class</th></tr>\n";
    for (const RecordReport& gradient : root.gradients) {
      out_ << "<tr><td>" << escape_markup(gradient.scope) << ' ' << escape_markup(gradient.slot)
           << "</td><td>" << tools::number_text(gradient.base.stats.l2, 9) << "</td><td>"
           << tools::number_text(gradient.cand.stats.l2, 9) << "</td><td>"
           << to_string(gradient.comparison.verdict) << "</td></tr>\n";
    }
    out_ << "</table></div></details>\n";
  }

  void around(const RootReport& root) {
    out_ << "<h2>Values around the root, in the same step</h2>\n<div "
            "class=\"scroll\"><table><tr><th>place</th><th>value</th>"
            "<th>class</th><th>largest difference</th></tr>\n";
    for (size_t i = 0; i < root.around.size(); ++i) {
      const RecordReport& record = root.around[i];
      const Comparison& c = i == root.around_root ? root.record.comparison : record.comparison;
      out_ << (i == root.around_root ? "<tr class=\"root\">" : "<tr>") << "<td>"
           << quote_markup(module_text(record)) << "</td><td>" << quote_markup(object_text(record))
           << "</td><td>" << to_string(c.verdict) << "</td><td>";
      if (c.bits_differ && !std::isnan(c.difference)) {
        out_ << tools::number_text(c.difference) << " in " << to_string(c.field);
      }
      out_ << "</td></tr>\n";
    }
    out_ << "</table></div>\n";
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
    out_ << "<h2 id=\"differ\">The runs differ in</h2>\n<div "
            "class=\"scroll\"><table><tr><th></th><th>baseline</th><th>candidate</th>"
            "<th>what it does</th></tr>\n";
    for (const PreflightEntry& entry : result_.preflight) {
      out_ << "<tr><td>" << escape_markup(entry.name) << "</td><td>"
           << escape_markup(entry.base.value_or("(none)")) << "</td><td>"
           << escape_markup(entry.cand.value_or("(none)")) << "</td><td>" << meaning_of(entry.name)
           << "</td></tr>\n";
    }
    out_ << "</table></div>\n";
  }

  void facts() {
    if (result_.facts.empty()) return;
    out_ << "<h2 id=\"facts\">The programs differ in</h2>\n<div "
            "class=\"scroll\"><table><tr><th></th><th>baseline</th><th>candidate</th>"
            "<th>where</th><th>from step</th></tr>\n";
    for (const FactDifference& fact : result_.facts) {
      const std::string name = fact.module_class.empty()
                                   ? std::string(to_string(fact.kind)) + ' ' + fact.name
                                   : fact.module_class + ' ' + fact.name;
      const std::string many =
          fact.modules > 1 ? " (" + std::to_string(fact.modules) + " of them)" : "";
      out_ << "<tr><td>" << escape_markup(name) << "</td><td>"
           << escape_markup(fact.base.value_or("(none)")) << "</td><td>"
           << escape_markup(fact.cand.value_or("(none)")) << "</td><td>"
           << escape_markup(fact.scope + many) << "</td><td>" << fact.step << "</td></tr>\n";
    }
    out_ << "</table></div>\n";
  }

  void findings() {
    if (result_.base_findings.list.empty() && result_.cand_findings.list.empty()) return;
    out_ << "<h2>Findings</h2>\n";
    finding_list(result_.base_findings, false);
    finding_list(result_.cand_findings, true);
  }

  void finding_list(const Findings& findings, bool in_cand) {
    const std::vector<ToldStory> stories = told_stories(findings);
    const size_t shown = std::min(kStoriesShown, stories.size());
    for (size_t i = 0; i < shown; ++i) {
      out_ << "<details><summary>" << quote_markup(finding_title(*stories[i].first, in_cand))
           << "</summary>\n";
      finding_body(*stories[i].first);
      rest(stories[i].others);
      out_ << "</details>\n";
    }
    if (shown < stories.size()) {
      paragraph("and " + std::to_string(stories.size() - shown) + " others in the " +
                (in_cand ? "candidate" : "baseline") + " (--json has all)");
    }
  }

  /// The other findings of the story above.
  void rest(const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    out_ << "<p>Of the same memory or by the same code:</p><ul>";
    for (const std::string& text : lines) out_ << "<li>" << quote_markup(text) << "</li>";
    out_ << "</ul>\n";
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
  const PageRows& rows_;
  std::ostream& out_;
};

}  // namespace

void write_html_report(const DiffResult& result, const PageRows& rows, std::ostream& out) {
  HtmlReport(result, rows, out).write();
}

}  // namespace convtrace::diff

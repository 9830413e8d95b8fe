#include "tools/diff/page/report_html.h"

#include <algorithm>
#include <optional>
#include <string>

#include "tools/common/text.h"
#include "tools/diff/cause/finding_stories.h"
#include "tools/diff/facts/excuses.h"
#include "tools/diff/page/root_section.h"
#include "tools/diff/report/report_parts.h"
#include "tools/diff/report/reports.h"
#include "tools/report/markup.h"

namespace convtrace::diff {

extern const char* const kPageScript;  // of page/*.js, made by CMake

namespace {

using tools::escape_markup;
using tools::quote_markup;

constexpr std::string_view kCharts = R"(<svg id="empty" hidden></svg>
<h2>Over the steps</h2>
<div id="tabs" class="screen" role="tablist" aria-label="what is drawn over the steps"></div>
<div class="charts wide"><figure id="over" role="tabpanel" aria-label="chart over the steps"></figure></div>
<h2>Modules and steps</h2>
<p class="screen"><label>find <input id="modules" type="search" placeholder="module"></label>
<label>phase <select id="phase"><option value="-1">all</select></label>
<label><input id="bad" type="checkbox">only modules that diverge</label>
<label><input id="order" type="checkbox" checked>the first to diverge on top</label>
<span id="map-matches" aria-live="polite"></span></p>
<p class="screen"><button type="button" id="in">zoom in</button>
<button type="button" id="out">zoom out</button> <button type="button" id="all">all steps</button>
<span id="steps"></span></p>
<p id="legend" class="legend"></p>
<div id="map"><canvas id="heat" tabindex="0" role="img" aria-describedby="cell"
aria-label="how far apart each module is in each step; arrow keys read it, space opens and closes, plus and minus zoom, 0 shows all steps, Enter lists the values"></canvas><div id="map-rest"></div></div>
<p id="cell" aria-live="polite"></p>
<p class="screen hint">Click a name to open it; drag across steps to zoom; click a cell to list its values.</p>
)";

constexpr std::string_view kValues = R"(<h2 class="screen">Every value</h2>
<p class="screen"><label>find <input id="filter" type="search" placeholder="module, slot, op"></label>
<label>at least <select id="least">)";

constexpr std::string_view kList = R"(</select></label>
<label>plot <select id="field"><option>l2<option>mean<option>std</select></label>
<span id="matches" aria-live="polite"></span></p>
<div class="charts"><figure id="tensor"></figure></div>
<div id="list" tabindex="0" role="listbox" aria-label="compared values"></div>
)";

constexpr size_t kStoriesShown = 200;

class HtmlReport {
 public:
  HtmlReport(const DiffResult& result, const PageRows& rows, std::ostream& out)
      : result_(result), rows_(rows), out_(out) {
    if (result.root) root_.emplace(result, out_);
  }

  void write() {
    header();
    out_ << "<main>\n";
    happened();
    if (root_) root_->flow();
    advise();
    notes();
    out_ << kCharts;
    if (root_) root_->numbers();
    first_bit_difference();
    listing();
    findings();
    facts();
    preflight();
    script();
    out_ << "</main></body></html>\n";
  }

 private:
  void header() {
    const std::string title = quote_markup(headline(result_));
    out_.begin_page("convtrace-diff", title, kPageStyle, true);
    out_ << "<header>\n<h1 class=\"" << to_string(result_.verdict) << "\">" << title
         << "</h1>\n<p class=\"files\">" << escape_markup(result_.base_path)
         << " <span>against</span> " << escape_markup(result_.cand_path) << "</p>\n";
    out_ << "<div class=\"bar\" aria-hidden=\"true\">";
    for (size_t i = 0; i < kClassCount; ++i) {
      if (result_.counts[i] == 0) continue;
      out_ << "<i style=\"flex-grow:" << result_.counts[i] << ";background:var(--c" << i
           << ")\"></i>";
    }
    out_ << "</div>\n";
    out_.paragraph("Compared " + quote_markup(compared_text(result_)) + ".");
    out_.paragraph(quote_markup(phase_text(result_)));
    for (const std::string& why : result_.incomplete)
      out_ << "<p class=\"warning\">Incomplete: " << escape_markup(why) << "</p>\n";
    out_ << "</header>\n";
  }

  /// Why the runs part.
  void happened() {
    const std::vector<std::string> differ = differences();
    if (!result_.cause && !root_ && differ.empty()) return;
    out_ << "<section class=\"card\">\n";
    out_.heading(result_.cause ? "Probable cause" : "What happened", "cause");
    if (result_.cause) cause(*result_.cause);
    if (root_) {
      out_.paragraph((result_.cause ? "The root: " : "") +
                     quote_markup(root_sentence(*result_.root)));
      root_->differences();
    }
    for (const std::string& html : differ) out_ << html << "\n";
    out_ << "</section>\n";
  }

  void advise() {
    const std::vector<std::string> advised = advice(result_);
    if (!root_ && advised.empty()) return;
    out_ << "<section class=\"card\">\n";
    out_.heading("What to do", "next");
    out_ << "<ol>\n";
    for (const std::string& text : advised) out_.item(quote_markup(text));
    if (root_) root_->code();
    write_commands(result_, out_);
    out_ << "</ol>\n</section>\n";
  }

  void cause(const Cause& probable) {
    if (!probable.finding) {
      out_.paragraph("<b>" + escape_markup(probable.text) + "</b>");
      for (const std::string& one : probable.evidence) out_.paragraph(escape_markup(one));
      return;
    }
    const FindingCause& cause = *probable.finding;
    out_.paragraph("<b>" + quote_markup(title_of_cause(result_)) + "</b>");
    finding_body(cause.finding);
    const auto& findings = cause.in_cand ? result_.cand_findings : result_.base_findings;
    const std::vector<std::string> lines = rest_of_story(findings, cause.index);
    if (lines.empty()) return;
    out_ << "<details><summary>" << lines.size()
         << " other findings of the same memory or by the same code</summary>\n";
    list(lines);
    out_ << "</details>\n";
  }

  /// @return the lines of changed code, folded; "" where they are not known.
  [[nodiscard]] std::string changed_lines(const FactDifference& fact) const {
    if (fact.lines.empty()) return "";
    const bool is_cause = result_.cause && result_.cause->rule == "code";
    std::string text = std::string("<details") + (is_cause ? " open" : "") +
                       "><summary>lines that changed</summary><pre class=\"source\" "
                       "tabindex=\"0\">";
    for (const std::string& line : fact.lines) {
      const std::string tag = line.front() == '-' ? "del" : line.front() == '+' ? "ins" : "span";
      text.append("<").append(tag).append(">").append(quote_markup(line));
      text.append("</").append(tag).append(">\n");
    }
    return text + "</pre></details>";
  }

  /// @return the differences of the two runs besides the root, with links to the tables, a paragraph each.
  [[nodiscard]] std::vector<std::string> differences() const {
    constexpr size_t kNamed = 3, kWithLines = 16;
    std::vector<std::string> items;
    for (const FactDifference& fact : result_.facts) {
      const std::string text = fact_text(fact);
      if (items.size() >= (fact.lines.empty() ? kNamed : kWithLines)) continue;
      const bool was_said = result_.cause && result_.cause->text == text;
      if (was_said && fact.lines.empty()) continue;
      items.push_back("<p><a href=\"#facts\">The programs differ</a>: " + escape_markup(text) +
                      "</p>" + changed_lines(fact));
    }
    const auto& entries = result_.preflight;
    std::string text;
    for (size_t i = 0; i < entries.size() && i < kNamed; ++i)
      text += (i == 0 ? "" : ", ") + escape_markup(entries[i].name);
    if (entries.size() > kNamed)
      text += ", and " + std::to_string(entries.size() - kNamed) + " more";
    if (!text.empty())
      items.push_back("<p><a href=\"#differ\">The runs differ in</a> " + text + ".</p>");
    return items;
  }

  /// Lists the further evidence for the verdict, and its limits.
  void notes() {
    std::vector<std::string> items;
    const auto add = [&items](const char* what, const std::vector<std::string>& lines) {
      for (const std::string& text : lines) {
        if (!text.empty()) items.push_back(what + quote_markup(text));
      }
    };
    add("Ranks: ", rank_lines(result_));
    add("Replicas: ", replica_lines(result_));
    add("Rounding: ", rounding_lines(result_));
    add("", {renamed_text(result_), step_offset_text(result_.step_offset), waived_text(result_),
             passes_text(result_)});
    add("Layouts: ", whole_lines(result_));
    add("One-sided: ", one_sided_lines(result_));
    add("Other ops: ", rewritten_lines(result_));
    add("Other form: ", other_form_lines(result_));
    for (const std::string& text : alias_lines(result_))
      items.push_back("Aliasing: " + escape_markup(text));
    if (items.empty()) return;
    out_ << "<ul class=\"notes\">\n";
    for (const std::string& html : items) out_.item(html);
    out_ << "</ul>\n";
  }

  void listing() {
    out_ << kValues;
    for (size_t i = 0; i < kClassCount; ++i)
      out_ << "<option value=\"" << i << "\">" << to_string(static_cast<Class>(i));
    out_ << kList;
  }

  void script() {
    tools::Json data = rows_.json();
    data["per_step"] = per_step_json(result_);
    data["exact"] = result_.exact;
    data["ranks"] = result_.ranks.size();
    data["root_step"] = result_.root ? tools::step_json(result_.root->record.step) : tools::Json();
    data["root_phase"] =
        result_.root ? tools::Json(to_string(result_.root->record.phase)) : tools::Json();
    data["root_scope"] =
        result_.root ? tools::Json(tools::escape_text(result_.root->record.scope)) : tools::Json();
    data["histograms"] = root_ ? root_->histograms() : tools::Json::array();
    // Inside a script element nothing is escaped, but it ends at "</script": no "<" is left.
    std::string text = tools::dump_json(data);
    for (size_t at = text.find('<'); at != text.npos; at = text.find('<', at))
      text.replace(at, 1, "\\u003c");
    out_ << "<script type=\"application/json\" id=\"data\">" << text << "</script>\n<script>"
         << kPageScript << "</script>\n";
  }

  void first_bit_difference() {
    if (!result_.first_bit_difference) return;
    const RecordReport& record = result_.first_bit_difference->record;
    out_.heading("First bit difference", "first-bit");
    out_.paragraph(quote_markup(place_text(record, !result_.wholes)) + ", " +
                   quote_markup(object_text(record)) + " (" +
                   std::string(to_string(record.comparison.verdict)) + ")");
  }

  void preflight() {
    if (result_.preflight.empty()) return;
    out_.heading("The runs differ in", "differ");
    out_.begin_table("differences of the runs", {"", "baseline", "candidate", "what it does"});
    for (const PreflightEntry& entry : result_.preflight) {
      out_ << "<tr><th scope=\"row\">" << escape_markup(entry.name) << "</th><td>"
           << escape_markup(entry.base.value_or("(none)")) << "</td><td>"
           << escape_markup(entry.cand.value_or("(none)")) << "</td><td>" << meaning_of(entry).text
           << "</td></tr>\n";
    }
    out_.end_table();
  }

  void facts() {
    if (result_.facts.empty()) return;
    out_.heading("The programs differ in", "facts");
    out_.begin_table("differences of the programs",
                     {"", "baseline", "candidate", "where", "from step"});
    for (const FactDifference& fact : result_.facts) {
      const std::string name = fact.module_class.empty()
                                   ? std::string(to_string(fact.kind)) + ' ' + fact.name
                                   : fact.module_class + ' ' + fact.name;
      const std::string many =
          fact.modules > 1 ? " (" + std::to_string(fact.modules) + " of them)" : "";
      out_ << "<tr><th scope=\"row\">" << escape_markup(name) << "</th><td>"
           << escape_markup(fact.base.value_or("(none)")) << "</td><td>"
           << escape_markup(fact.cand.value_or("(none)")) << "</td><td>"
           << escape_markup(fact.scope + many) << "</td><td>" << fact.step << "</td></tr>\n";
    }
    out_.end_table();
  }

  void findings() {
    if (result_.base_findings.list.empty() && result_.cand_findings.list.empty()) return;
    out_.heading("Findings", "findings");
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
      if (!stories[i].others.empty()) {
        out_.paragraph("Of the same memory or by the same code:");
        list(stories[i].others);
      }
      out_ << "</details>\n";
    }
    if (shown < stories.size()) {
      out_.paragraph("and " + std::to_string(stories.size() - shown) + " others in the " +
                     (in_cand ? "candidate" : "baseline") + " (--json has all)");
    }
  }

  void list(const std::vector<std::string>& lines) {
    out_ << "<ul>\n";
    for (const std::string& text : lines) out_.item(quote_markup(text));
    out_ << "</ul>\n";
  }

  void finding_body(const FindingReport& finding) {
    out_.paragraph(escape_markup(finding.message));
    stack("allocated", finding.alloc_stack);
    stack("launched", finding.launch_stack);
    stack("freed", finding.free_stack);
  }

  void stack(const char* what, const std::vector<std::string>& frames) {
    if (frames.empty()) return;
    out_ << "<details><summary>" << what << " in " << escape_markup(frames.front())
         << "</summary><pre tabindex=\"0\">";
    for (const std::string& frame : frames) out_ << escape_markup(frame) << "\n";
    out_ << "</pre></details>\n";
  }

  const DiffResult& result_;
  const PageRows& rows_;
  Markup out_;
  std::optional<RootSection> root_;
};

}  // namespace

void write_html_report(const DiffResult& result, const PageRows& rows, std::ostream& out) {
  HtmlReport(result, rows, out).write();
}

}  // namespace convtrace::diff

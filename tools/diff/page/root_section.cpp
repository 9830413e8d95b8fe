#include "tools/diff/page/root_section.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <vector>

#include "tools/common/text.h"
#include "tools/diff/page/page_rows.h"
#include "tools/diff/report/next_commands.h"
#include "tools/diff/report/report_parts.h"
#include "tools/diff/verdict/root_region.h"

namespace convtrace::diff {
namespace {

using tools::escape_markup;
using tools::quote_markup;

/// @return what finds the value among the page's rows (flow.js), as an attribute's text.
std::string key_of(const RecordReport& record) {
  const tools::Json key = {
      record.rank,
      record.step == format::kNoStep ? tools::Json() : tools::Json(record.step),
      tools::escape_text(record.scope),
      tools::escape_text(record.slot),
      to_string(record.phase),
      record.call,
      tools::escape_text(op_name(record))};
  return quote_markup(tools::dump_json(key));
}

}  // namespace

void RootSection::code() const {
  // What comes in is made by whoever calls.
  const CodePlace& code = root_.caller.module_class.empty() ? root_.code : root_.caller;
  const bool is_data = root_.record.phase == format::Phase::kData && !root_.came_in;
  const std::string text = is_data ? "" : code_text(code);
  if (!text.empty()) out_.item("Read the code: " + escape_markup(text));
  if (is_data && !code.call.empty())
    out_.item("Read what makes " + escape_markup(root_.record.slot) + ", before " +
              escape_markup(code.call));
  const size_t first_line = code.source.find('\n');
  if (first_line != std::string::npos)
    out_ << "<li><details><summary>Source of " << escape_markup(code.module_class) << ", from line "
         << escape_markup(code.source.substr(0, first_line))
         << " on</summary><pre class=\"source\" tabindex=\"0\">"
         << quote_markup(code.source.substr(first_line + 1)) << "</pre></details></li>\n";
  const std::string region = region_text(root_.region);
  if (!region.empty()) out_.item("Compiled region: " + escape_markup(region));
  const std::string generated = generated_text(root_.code.generated);
  if (!generated.empty()) out_.item("Read the generated code: " + escape_markup(generated));
}

void RootSection::differences() const {
  if (!root_.has_values()) return;
  out_.paragraph(quote_markup(tolerance_text(shown_difference(root_))));
  out_.paragraph(quote_markup(factor_text(root_)));
  out_.paragraph(quote_markup(rounding_hint(result_)));
}

void write_commands(const DiffResult& result, Markup& out) {
  if (!has_next(result)) return;
  const std::vector<std::string> lines = next_commands(result);
  if (lines.empty()) return;
  std::string title = next_title(result);
  title.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(title.front())));
  out << "<li>" << title << "<pre class=\"commands\" tabindex=\"0\">";
  for (const std::string& line : lines) out << quote_markup(line) << "\n";
  out << "</pre></li>\n";
}

void RootSection::box(const RecordReport& record, Class verdict, const std::string& note,
                      bool by_order) const {
  out_ << "<button type=\"button\" class=\"box" << (by_order ? " by-order" : "")
       << "\" style=\"--class:var(--c" << static_cast<int>(verdict) << ")\" data-value=\""
       << key_of(record) << "\"><b>" << quote_markup(scope_text(record.scope)) << "</b><span>"
       << quote_markup(object_text(record)) << "</span>";
  if (!note.empty()) out_ << "<span>" << note << "</span>";
  out_ << "<i>" << to_string(verdict) << "</i></button>\n";
}

void RootSection::flow_side(const char* title, const std::vector<FlowStep>& steps,
                            size_t more) const {
  out_ << "<div class=\"side\"><p>" << title << "</p>\n";
  for (const FlowStep& step : steps) {
    const std::string as = step.as.empty() ? "" : "as " + escape_markup(step.as);
    box(step.value, step.value.comparison.verdict, step.by_order ? "by order alone" : as,
        step.by_order);
  }
  if (more != 0) out_.paragraph("and " + std::to_string(more) + " more");
  if (steps.empty()) out_.paragraph("none recorded in this step");
  out_ << "</div>\n";
}

void RootSection::flow() const {
  if (!root_.has_values()) return;
  const DataFlow& flow = root_.flow;
  out_.heading("Data flow around the root", "flow-title");
  out_ << "<div class=\"flow\">\n";
  flow_side("made of", flow.sources, flow.more_sources);
  out_ << "<div class=\"arrow\" aria-hidden=\"true\"></div>\n<div class=\"side\"><p>the root</p>\n";
  box(root_.record, root_.record.comparison.verdict, quote_markup(type_text(root_.record)), false);
  out_ << "</div>\n<div class=\"arrow\" aria-hidden=\"true\"></div>\n";
  flow_side("used for", flow.consumers, flow.more_consumers);
  out_ << "</div>\n";
}

void RootSection::numbers() {
  if (root_.has_values()) values();
  gradients();
  around();
}

void RootSection::values() {
  out_.heading("Root", "root");
  out_.paragraph(quote_markup(place_text(root_.record, !result_.wholes)) + "<br>" +
                 quote_markup(object_text(root_.record)) + ", " +
                 quote_markup(type_text(root_.record)) + "<br>class " +
                 std::string(to_string(root_.record.comparison.verdict)) + "; matched by " +
                 quote_markup(match_text(root_.record)) +
                 "<br>before it: " + quote_markup(before_text(result_)));
  const std::string maker = maker_line(root_);
  if (!maker.empty()) out_.paragraph("Made by " + quote_markup(maker) + ".");
  out_.paragraph(quote_markup(one_sided_text(root_)));
  table(root_.record);
  if (root_.consumer) {
    out_.paragraph("As seen by " + quote_markup(place_text(*root_.consumer, false)) + ", " +
                   quote_markup(object_text(*root_.consumer)) + ":");
    table(*root_.consumer);
  }
  if (root_.effect) {
    out_.paragraph("First values that suffered: " + quote_markup(place_text(*root_.effect, false)) +
                   ", " + quote_markup(object_text(*root_.effect)) + ":");
    table(*root_.effect);
  }
}

void RootSection::table(const RecordReport& record) {
  out_ << "<div class=\"charts\">\n";
  out_.begin_table("both runs' numbers", {"", "baseline", "candidate"});
  std::vector<StatRow> rows = stat_rows(record);
  std::stable_partition(rows.begin(), rows.end(), [](const StatRow& row) { return row.deciding; });
  for (const StatRow& row : rows) {
    out_ << "<tr class=\"" << (row.base == row.cand ? "" : "differs ")
         << (row.deciding ? "decides" : "") << "\"><th scope=\"row\">" << row.name << "</th><td>"
         << quote_markup(row.base) << "</td><td>" << quote_markup(row.cand) << "</td></tr>\n";
  }
  out_.end_table();
  if (record.elements && record.elements->histogram) {
    const Histogram& histogram = *record.elements->histogram;
    const std::string id = "histogram-" + std::to_string(histograms_.size());
    out_ << "<figure id=\"" << id << "\"></figure>\n";
    histograms_.push_back({{"id", id},
                           {"low", histogram.low},
                           {"high", histogram.high},
                           {"base", histogram.base},
                           {"cand", histogram.cand}});
  }
  out_ << "</div>\n";
  for (const std::string& text : element_lines(record)) out_.paragraph(quote_markup(text));
}

void RootSection::gradients() const {
  if (root_.gradients.empty()) return;
  out_ << "<details class=\"long\"><summary>Norms of the gradients that differ in this "
          "step</summary>\n";
  out_.begin_table("gradients", {"weight", "baseline", "candidate", "class"});
  for (const RecordReport& gradient : root_.gradients) {
    out_ << "<tr><th scope=\"row\">" << escape_markup(gradient.scope) << ' '
         << escape_markup(gradient.slot) << "</th><td>"
         << tools::number_text(gradient.base.stats.l2, 9) << "</td><td>"
         << tools::number_text(gradient.cand.stats.l2, 9) << "</td><td>"
         << to_string(gradient.comparison.verdict) << "</td></tr>\n";
  }
  out_.end_table();
  out_ << "</details>\n";
}

void RootSection::around() const {
  if (root_.around.empty()) return;
  out_ << "<details><summary>Values around the root, in the same step</summary>\n";
  out_.begin_table("values around the root", {"place", "value", "class", "largest difference"});
  for (size_t i = 0; i < root_.around.size(); ++i) {
    const RecordReport& record = root_.around[i];
    const Comparison& c = i == root_.around_root ? root_.record.comparison : record.comparison;
    out_ << (i == root_.around_root ? "<tr class=\"root\">" : "<tr>") << "<th scope=\"row\">"
         << quote_markup(module_text(record)) << "</th><td>" << quote_markup(object_text(record))
         << "</td><td>" << to_string(c.verdict) << "</td><td>";
    if (c.bits_differ && !std::isnan(c.difference)) {
      out_ << (is_measured(c.field) ? difference_text(c) : tools::number_text(c.difference))
           << " in " << to_string(c.field);
    }
    out_ << "</td></tr>\n";
  }
  out_.end_table();
  out_ << "</details>\n";
}

}  // namespace convtrace::diff

#include <algorithm>
#include <map>
#include <set>

#include "tools/common/escape.h"
#include "tools/common/text.h"
#include "tools/origin/model/rank_text.h"
#include "tools/origin/report/reports.h"
#include "tools/report/markup.h"

namespace convtrace::origin {
namespace {

using tools::escape_markup;
using tools::quote_markup;

constexpr size_t kMostColumns = 120;
constexpr size_t kMostRows = 400;
constexpr size_t kMostOrigins = 200;

constexpr const char* kMatrixStyle =
    ".matrix td{padding:0;border:1px solid var(--bg);min-width:.55rem;height:1rem}"
    ".matrix th{white-space:nowrap;padding:0 .5rem}.k1{background:var(--c0)}"
    ".k2{background:var(--c4)}.k3{background:var(--c5)}.k0{background:var(--soft)}"
    ".matrix td.k3::after{content:\"!\";color:#fff;font-weight:700;display:block;text-align:center;"
    "line-height:1rem}.matrix td.step{background:none;max-width:.55rem;font-size:.7rem;"
    "white-space:nowrap;overflow-wrap:normal}.legend i{border:1px solid var(--line)}";

constexpr const char* kStateNames[] = {"not known", "nothing found", "received", "origin"};

using Row = std::vector<CellState>;

/// One row for all ranks that went alike, in the order of their first ranks.
struct RowOfRanks {
  Row row;
  std::vector<uint32_t> ranks;
};

/// @param width  steps in a column. A column is as bad as its worst step.
std::vector<RowOfRanks> rows_of(const OriginResult& result, size_t steps, size_t width) {
  std::map<Row, std::vector<uint32_t>> alike;
  for (size_t i = 0; i < result.cells.size() && i < result.ranks.size(); ++i) {
    Row row;
    for (size_t begin = 0; begin < steps; begin += width) {
      CellState worst = CellState::kUnknown;
      for (size_t at = begin; at < std::min({begin + width, steps, result.cells[i].size()}); ++at)
        worst = std::max(worst, result.cells[i][at]);
      row.push_back(worst);
    }
    alike[std::move(row)].push_back(result.ranks[i]);
  }
  std::vector<RowOfRanks> rows;
  for (auto& [row, ranks] : alike) rows.push_back({row, std::move(ranks)});
  // Ranks where something began first, then those that received it.
  std::ranges::sort(rows, [](const RowOfRanks& a, const RowOfRanks& b) {
    const CellState worst_a = a.row.empty() ? CellState::kUnknown : std::ranges::max(a.row);
    const CellState worst_b = b.row.empty() ? CellState::kUnknown : std::ranges::max(b.row);
    return worst_a != worst_b ? worst_a > worst_b : a.ranks.front() < b.ranks.front();
  });
  return rows;
}

/// A number above the first column, the last, and each in which an origin begins.
void write_steps(const OriginResult& result, size_t columns, size_t width, diff::Markup& out) {
  std::set<size_t> numbered = {0, columns - 1};
  for (const Origin& origin : result.origins)
    if (origin.step >= result.first_step)
      numbered.insert((origin.step - result.first_step) / width);
  out << "<tr><th scope=\"row\">step</th>";
  size_t free_from = 0;  // a number covers a column for each digit
  for (size_t column = 0; column < columns; ++column) {
    out << "<td class=\"step\">";
    if (numbered.contains(column) && column >= free_from) {
      const std::string number = std::to_string(result.first_step + column * width);
      out << number;
      free_from = column + number.size() + 1;
    }
    out << "</td>";
  }
  out << "</tr>\n";
}

void write_matrix(const OriginResult& result, diff::Markup& out) {
  size_t steps = 0;
  for (const Row& row : result.cells) steps = std::max(steps, row.size());
  if (steps == 0) return;
  const size_t width = (steps + kMostColumns - 1) / kMostColumns;
  const std::vector<RowOfRanks> rows = rows_of(result, steps, width);
  out.heading("Ranks by steps", "matrix");
  out << "<p class=\"legend\">";
  for (size_t state = 4; state-- > 0;)
    out << "<span><i class=\"k" << state << "\"></i>" << kStateNames[state] << "</span>";
  out << "</p>\n";
  out.paragraph("Ranks that went alike share a row." +
                (width == 1 ? "" : " A column is " + tools::counted(width, "step") + "."));
  out << "<div class=\"scroll matrix\" tabindex=\"0\" role=\"region\" "
         "aria-label=\"ranks by steps\"><table>\n";
  write_steps(result, (steps + width - 1) / width, width, out);
  for (size_t i = 0; i < std::min(rows.size(), kMostRows); ++i) {
    const RowOfRanks& row = rows[i];
    out << "<tr><th scope=\"row\">" << ranks_named(row.ranks)
        << (row.ranks.size() > 1 ? " (" + std::to_string(row.ranks.size()) + ")" : "") << "</th>";
    for (size_t column = 0; column < row.row.size(); ++column) {
      const auto state = static_cast<size_t>(row.row[column]);
      out << "<td class=\"k" << state << "\" title=\"step " << result.first_step + column * width
          << ": " << kStateNames[state] << "\"></td>";
    }
    out << "</tr>\n";
  }
  out << "</table></div>\n";
  if (rows.size() > kMostRows)
    out.paragraph("And " + std::to_string(rows.size() - kMostRows) + " more rows.");
}

void write_origin(const Origin& origin, diff::Markup& out) {
  out.begin_found("warning", std::string(to_string(origin.kind)), quote_markup(place_of(origin)),
                  origin.text, origin.times, origin.evidence);
  if (const std::string text = received_text(origin); !text.empty())
    out.paragraph("Received " + quote_markup(text) + ".");
  out.paragraph("Next: " + escape_markup(origin.next));
  out << "</section>\n";
}

}  // namespace

void write_html(const OriginResult& result, std::ostream& stream) {
  diff::Markup out(stream);
  const std::string title = quote_markup(headline(result));
  out.begin_report("convtrace origin", title, std::string(diff::kPageStyle) + kMatrixStyle,
                   result.origins.empty(), result.paths, result.incomplete);
  if (!result.origins.empty())
    out.paragraph("<b>" + escape_markup(result.origins.front().text) + "</b>");
  out << "</header>\n<main>\n";
  write_matrix(result, out);
  if (!result.origins.empty()) out.heading("Origins, first first", "origins");
  for (size_t i = 0; i < std::min(result.origins.size(), kMostOrigins); ++i)
    write_origin(result.origins[i], out);
  if (result.origins.size() > kMostOrigins)
    out.paragraph("And " + std::to_string(result.origins.size() - kMostOrigins) +
                  " more: the JSON report has them.");
  if (!result.notes.empty()) out.heading("What was not judged", "notes");
  for (const std::string& note : result.notes) out.paragraph(escape_markup(note));
  out << "</main></body></html>\n";
}

}  // namespace convtrace::origin

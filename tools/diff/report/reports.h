#pragma once
/// @file reports.h
/// The reports of one result: for a terminal, for programs, for continuous integration, and a row a
/// value. The page is page/report_html.h.
///
/// Source:   docs/reference.md "JSON".

#include <ostream>

#include "tools/common/json.h"
#include "tools/diff/verdict/rank_diff.h"
#include "tools/diff/verdict/result.h"
#include "tools/report/brief.h"
#include "tools/report/text_layout.h"

namespace convtrace::diff {

/// Its first screen contains the answer.
void write_text_report(const DiffResult& result, Terminal terminal, std::ostream& out);

/// Loss and gradient norm of every step, a part of json_report.
[[nodiscard]] tools::Json per_step_json(const DiffResult& result);
/// Keys are part of convtrace's interface: keys may be added, none removed.
[[nodiscard]] tools::Json json_report(const DiffResult& result);

[[nodiscard]] report::Brief brief_of(const DiffResult& result);
/// The place of a value (RecordReport) or of a finding (FindingReport).
[[nodiscard]] tools::Json place_json(const auto& place) {
  return {{"rank", place.rank},
          {"step", tools::step_json(place.step)},
          {"phase", to_string(place.phase)},
          {"scope", place.scope},
          {"call", place.call},
          {"slot", place.slot},
          {"op", tools::text_or_null(place.op)}};
}

/// JUnit XML, one case per rank and one for the findings.
void write_junit_report(const DiffResult& result, std::ostream& out);

/// One row per compared or unmatched value, written while the traces are read.
class CsvReport final : public RowSink {
 public:
  /// Writes the header row. @param out must outlive the report.
  explicit CsvReport(std::ostream& out);
  void row(const RecordReport& record, bool in_base, bool in_cand) override;

 private:
  std::ostream& out_;
};

}  // namespace convtrace::diff

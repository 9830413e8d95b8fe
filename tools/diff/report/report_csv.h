#pragma once
/// @file report_csv.h
/// One row per compared or unmatched value, written while the traces are read.

#include <ostream>

#include "tools/diff/verdict/rank_diff.h"

namespace convtrace::diff {

class CsvReport final : public RowSink {
 public:
  /// Writes the header row. @param out must outlive the report.
  explicit CsvReport(std::ostream& out);
  void row(const RecordReport& record, bool in_base, bool in_cand) override;

 private:
  std::ostream& out_;
};

}  // namespace convtrace::diff

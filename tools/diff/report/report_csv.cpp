#include "tools/diff/report/reports.h"

#include <cmath>
#include <string>

#include "tools/common/element.h"
#include "tools/common/escape.h"
#include "tools/common/json.h"
#include "tools/common/text.h"

namespace convtrace::diff {
namespace {

/// 17 digits identify every double.
std::string exact(double value) { return std::isnan(value) ? "" : tools::number_text(value, 17); }

std::string shape_text(const SideReport& side) {
  std::string text;
  for (const uint64_t extent : side.shape)
    text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text;
}

void write_side(std::ostream& out, const SideReport& side, bool present) {
  constexpr int kColumns = 11;
  if (!present) {
    out << std::string(kColumns, ',');
    return;
  }
  const format::Stats& s = side.stats;
  out << ',' << to_string(side.dtype) << ',' << shape_text(side) << ',' << s.count << ','
      << tools::hex_text(s.hash);
  if (side.capture == format::Capture::kHash) {
    out << std::string(kColumns - 4, ',');
    return;
  }
  out << ',' << exact(s.mean) << ',' << exact(s.std) << ',' << exact(s.l2) << ','
      << exact(tools::extreme_as_double(side.dtype, s.min)) << ','
      << exact(tools::extreme_as_double(side.dtype, s.max)) << ',' << s.nan << ','
      << s.pos_inf + s.neg_inf;
}

void write_header(std::ostream& out, const char* side) {
  for (const char* column :
       {"dtype", "shape", "count", "hash", "mean", "std", "l2", "min", "max", "nan", "inf"}) {
    out << ',' << side << '_' << column;
  }
}

}  // namespace

CsvReport::CsvReport(std::ostream& out) : out_(out) {
  out_ << "rank,step,phase,scope,call,slot,op,kernel,class,field,difference,tolerance_used,z,"
          "matched_by,confidence,cand_scope,cand_slot";
  write_header(out_, "base");
  write_header(out_, "cand");
  out_ << '\n';
}

void CsvReport::row(const RecordReport& record, bool in_base, bool in_cand) {
  const Comparison& c = record.comparison;
  const bool matched = in_base && in_cand;
  out_ << record.rank << ',';
  if (record.step != format::kNoStep) out_ << record.step;
  out_ << ',' << to_string(record.phase) << ',' << tools::escape_csv(record.scope) << ','
       << record.call << ',' << tools::escape_csv(record.slot) << ','
       << tools::escape_csv(record.op) << ',' << tools::escape_csv(record.kernel) << ','
       << to_string(c.verdict) << ',';
  if (matched) {
    out_ << to_string(c.field) << ',' << exact(c.difference) << ',' << exact(c.tolerance) << ','
         << exact(c.z) << ',' << to_string(record.how) << ','
         << tools::number_text(static_cast<double>(record.confidence), 3) << ','
         << tools::escape_csv(record.cand_scope) << ',' << tools::escape_csv(record.cand_slot);
  } else {
    out_ << ",,,,,,,";
  }
  write_side(out_, record.base, in_base);
  write_side(out_, record.cand, in_cand);
  out_ << '\n';
}

}  // namespace convtrace::diff

// The numbers of report_parts.h: both runs' records of a value, side by side.

#include "tools/common/element.h"
#include "tools/common/json.h"
#include "tools/common/text.h"
#include "tools/diff/report/report_parts.h"

namespace convtrace::diff {
namespace {

using tools::count_text;
using tools::number_text;

bool has_statistics(const SideReport& side) { return side.capture != format::Capture::kHash; }

std::string wide_text(format::DType dtype, format::WideScalar value) {
  return format::number_class(dtype) == format::NumberClass::kFloat
             ? number_text(value.as_f64(), 9)
             : tools::wide_integer_text(value);
}

std::string samples_text(const SideReport& side) {
  std::string text;
  for (size_t i = 0; i < side.samples.size() && i < 4; ++i)
    text += (i == 0 ? "" : " ") + number_text(side.samples[i], 5);
  return side.samples.size() > 4 ? text + " ..." : text;
}

struct StatName {
  const char* name;
  Field field;  ///< the field shown by it, or kNone
};
constexpr StatName kStatNames[] = {
    {"mean", Field::kMean}, {"std", Field::kNone},    {"l1", Field::kNone},
    {"l2", Field::kNorm},   {"min", Field::kNone},    {"max", Field::kNone},
    {"amax", Field::kNone}, {"samples", Field::kRms}, {"nan / inf", Field::kNonFinite}};

/// Nine digits tell any two f32 numbers apart.
std::vector<std::string> stat_texts(const SideReport& side) {
  if (!has_statistics(side)) return std::vector<std::string>(std::size(kStatNames));
  const format::Stats& s = side.stats;
  const format::DType dtype = side.dtype;
  return {number_text(s.mean, 9),
          number_text(s.std, 9),
          wide_text(dtype, s.l1),
          number_text(s.l2, 9),
          number_text(tools::extreme_as_double(dtype, s.min), 9),
          number_text(tools::extreme_as_double(dtype, s.max), 9),
          number_text(tools::magnitude_as_double(dtype, s.amax), 9),
          samples_text(side),
          count_text(s.nan) + " / " + count_text(s.pos_inf + s.neg_inf)};
}

/// Place of a component's element in a tensor of that shape, "[2, 17]".
std::string index_text(const SideReport& side, uint64_t index) {
  std::string text;
  uint64_t element = index / format::values_in_element(side.dtype);
  for (auto extent = side.shape.rbegin(); extent != side.shape.rend(); ++extent) {
    if (*extent == 0) return std::to_string(index);
    text = std::to_string(element % *extent) + (text.empty() ? "" : ", ") + text;
    element /= *extent;
  }
  return text.empty() ? std::to_string(index) : '[' + text + ']';
}

}  // namespace

std::vector<StatRow> stat_rows(const RecordReport& record) {
  std::vector<StatRow> rows;
  std::vector<std::string> base = stat_texts(record.base);
  std::vector<std::string> cand = stat_texts(record.cand);
  for (size_t i = 0; i < base.size(); ++i) {
    if (base[i].empty() && cand[i].empty()) continue;
    rows.push_back(
        {kStatNames[i].name, base[i], cand[i], kStatNames[i].field == record.comparison.field});
  }
  rows.push_back({"hash", tools::hex_text(record.base.stats.hash),
                  tools::hex_text(record.cand.stats.hash),
                  record.comparison.field == Field::kHash});
  return rows;
}

std::vector<std::string> element_lines(const RecordReport& record) {
  if (!record.elements) return {};
  const ElementReport& e = *record.elements;
  std::vector<std::string> lines;
  lines.push_back(count_text(e.differing) + " of " + count_text(e.compared) + " elements differ" +
                  (e.compared < e.count ? " (of the first, the value is larger)" : "") +
                  "; max abs " + number_text(e.max_abs) + ", max rel " + number_text(e.max_rel) +
                  ", cosine " + number_text(e.cosine, 9));
  std::string within = "within";
  for (size_t i = 0; i < kWithin.size(); ++i) {
    const double share = static_cast<double>(e.within[i]) / static_cast<double>(e.compared);
    within +=
        (i == 0 ? " " : ", ") + number_text(kWithin[i]) + ": " + tools::percent_text(share, 5);
  }
  lines.push_back(within);
  if (e.has_ulps) {
    std::string ulps = "ulps";
    for (size_t i = 0; i < e.ulps.size(); ++i) {
      const bool last = i == kUlpLimits.size();
      ulps += (i == 0 ? " " : ", ") + (last ? "more" : "<=" + std::to_string(kUlpLimits[i])) +
              ": " + count_text(e.ulps[i]);
    }
    lines.push_back(ulps);
  }
  if (e.first) {
    lines.push_back("first at " + index_text(record.base, *e.first) + ": " +
                    number_text(e.first_base, 9) + " | " + number_text(e.first_cand, 9));
  }
  return lines;
}

}  // namespace convtrace::diff

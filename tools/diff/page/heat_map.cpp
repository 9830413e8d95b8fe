#include "tools/diff/page/heat_map.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace convtrace::diff {
namespace {

constexpr double kSmallest = 1e-12;  ///< smaller values fall into the first bin
constexpr int kBinsPerDecade = 4;

/// @return the measured difference in the units of Heat; NaN if it has no size.
double in_units(const RecordReport& record) {
  const Comparison& c = record.comparison;
  const double unit = c.tolerance > 0 ? c.tolerance : unit_roundoff(record.base.dtype);
  return is_measured(c.field) && unit > 0 ? c.difference / unit : NAN;
}

bool operator==(const HeatMap::Cell& a, const HeatMap::Cell& b) {
  return a.heat == b.heat && a.verdict == b.verdict;
}

/// A value of one run alone hides no difference.
int gravity(Class verdict) {
  const int grave = 2 * static_cast<int>(verdict);
  return verdict == Class::kUnmatched ? 2 * static_cast<int>(Class::kDiverged) - 1 : grave;
}

void warm(HeatMap::Cell& cell, const HeatMap::Cell& by) {
  cell.heat = std::max(cell.heat, by.heat);
  if (gravity(by.verdict) > gravity(cell.verdict)) cell.verdict = by.verdict;
}

std::string runs(const std::vector<HeatMap::Cell>& cells) {
  std::string text;
  for (size_t at = 0; at < cells.size();) {
    size_t end = at;
    while (end < cells.size() && cells[end] == cells[at]) ++end;
    if (cells[at].heat == Heat::kNothing) {
      text += '-';
    } else {
      text += static_cast<char>('a' + static_cast<int>(cells[at].verdict));
      text += static_cast<char>('A' + static_cast<int>(cells[at].heat));
    }
    text += std::to_string(end - at);
    at = end;
  }
  return text;
}

}  // namespace

double size_of(const RecordReport& record) {
  const Comparison& c = record.comparison;
  if (c.verdict == Class::kIdentical) return 0;
  constexpr double kOutside = 1.001;
  const bool has_statistics = record.base.capture != format::Capture::kHash &&
                              record.cand.capture != format::Capture::kHash;
  if (c.field == Field::kHash && has_statistics && !agrees(c.verdict)) return kOutside;
  const double size = in_units(record);
  if (!std::isfinite(size)) return NAN;
  return agrees(c.verdict) ? size : std::max(size, kOutside);
}

Heat heat_of(const RecordReport& record) {
  const Class verdict = record.comparison.verdict;
  if (verdict == Class::kUnmatched) return Heat::kOneSided;
  if (verdict == Class::kIdentical) return Heat::kEqual;
  const double size = size_of(record);
  if (std::isnan(size)) {
    if (agrees(verdict)) return Heat::kUnmeasured;
    return record.comparison.field == Field::kHash ? Heat::kHashes : Heat::kNoNumber;
  }
  constexpr double kLimits[] = {0.01, 0.1, 1, 10, 100, 1e3, 1e5};
  const auto at = std::ranges::lower_bound(kLimits, size) - std::begin(kLimits);
  const bool outside = size > 1;
  return static_cast<Heat>(static_cast<int>(Heat::kTo001) + at + (outside ? 2 : 0));
}

void HeatMap::Sizes::add(double size) {
  largest = std::max(largest, size);
  const double bin = size > kSmallest ? kBinsPerDecade * std::log10(size / kSmallest) : 0;
  ++bins[static_cast<size_t>(std::min(bin, kBins - 1.0))];
}

double HeatMap::Sizes::median() const {
  const uint64_t all = std::accumulate(bins.begin(), bins.end(), uint64_t{0});
  uint64_t below = 0;
  size_t bin = 0;
  for (; 2 * (below + bins[bin]) < all; ++bin) below += bins[bin];
  if (bin == 0) return 0;
  const double within = (static_cast<double>(all) / 2 - static_cast<double>(below)) / bins[bin];
  return std::min(largest,
                  kSmallest * std::pow(10, (static_cast<double>(bin) + within) / kBinsPerDecade));
}

void HeatMap::add(uint32_t scope, uint32_t step, const RecordReport& record) {
  Line& line = lines_[{scope, record.phase}];
  if (step >= line.size()) line.resize(step + 1);
  warm(line[step], {heat_of(record), record.comparison.verdict});
  if (step >= steps_.size()) steps_.resize(step + 1);
  const Comparison& c = record.comparison;
  if (c.verdict == Class::kIdentical) {
    steps_[step].add(0);
  } else if (is_measured(c.field) && std::isfinite(c.difference)) {
    steps_[step].add(c.difference);
    steps_[step].over = std::fmax(steps_[step].over, in_units(record));  // which may be NaN
  } else {
    steps_[step].unmeasured = true;
  }
}

void HeatMap::halve(Line& cells) {
  for (size_t i = 0; 2 * i < cells.size(); ++i) {
    Cell both = cells[2 * i];
    if (2 * i + 1 < cells.size()) warm(both, cells[2 * i + 1]);
    cells[i] = both;
  }
  cells.resize((cells.size() + 1) / 2);
}

tools::Json HeatMap::growth(std::span<const uint32_t> order) const {
  tools::Json list = tools::Json::array();
  for (const uint32_t step : order) {
    const Sizes sizes = step < steps_.size() ? steps_[step] : Sizes();
    if (sizes.largest < 0 || (sizes.largest == 0 && sizes.unmeasured)) {
      list.push_back(tools::Json());
    } else {
      list.push_back({tools::json_number(sizes.largest), tools::json_number(sizes.median()),
                      tools::json_number(sizes.over)});
    }
  }
  return list;
}

tools::Json HeatMap::json(std::span<const uint32_t> order, size_t limit) const {
  std::map<std::pair<uint32_t, format::Phase>, Line> lines;
  for (const auto& [key, line] : lines_)
    for (const uint32_t step : order)
      lines[key].push_back(step < line.size() ? line[step] : Cell());
  for (uint64_t steps = 1;; steps *= 2) {
    tools::Json texts = tools::Json::array();
    size_t bytes = 0, longest = 0;
    for (const auto& [key, line] : lines) {
      std::string text = runs(line);
      bytes += text.size();
      longest = std::max(longest, line.size());
      texts.push_back({key.first, static_cast<int>(key.second), std::move(text)});
    }
    if (bytes <= limit || longest <= 1) {
      return {{"steps_per_cell", steps}, {"lines", std::move(texts)}, {"growth", growth(order)}};
    }
    for (auto& [key, line] : lines) halve(line);
  }
}

}  // namespace convtrace::diff

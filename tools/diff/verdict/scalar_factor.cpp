#include "tools/diff/verdict/scalar_factor.h"

#include <algorithm>
#include <cmath>

namespace convtrace::diff {
namespace {

/// How far ratios of rounded numbers may be apart, in units of the coarser type's roundoff, and the
/// least that is told as a factor, as of tensors.
constexpr double kRoundings = 8, kLeast = 1e-3;

bool is_scalar(const ValueRecord& record) {
  return record.capture != format::Capture::kHash && record.stats.count == 1 &&
         std::isfinite(record.stats.mean);
}

/// What two calls of one place have in common.
RecordKey place_of(const ValueRecord& record) {
  RecordKey key = record.key;
  key.call = key.occurrence = 0;
  return key;
}

}  // namespace

std::optional<ScalarFactor> scalar_factor(const StepPair& pair, uint32_t match) {
  const ValueRecord& root = pair.base_of(match);
  if (!is_scalar(root) || !is_scalar(pair.cand_of(match))) return std::nullopt;
  const RecordKey place = place_of(root);
  double least = 0, largest = 0;
  ScalarFactor found;
  for (uint32_t m = 0; m < pair.size(); ++m) {
    const ValueRecord &base = pair.base_of(m), &cand = pair.cand_of(m);
    if (place_of(base) != place) continue;
    if (!is_scalar(base) || !is_scalar(cand) || base.stats.mean == 0) return std::nullopt;
    const double ratio = cand.stats.mean / base.stats.mean;
    least = found.calls == 0 ? ratio : std::min(least, ratio);
    largest = found.calls == 0 ? ratio : std::max(largest, ratio);
    if (m == match) found.value = ratio;
    ++found.calls;
  }
  const double roundoff =
      std::max(unit_roundoff(root.dtype), unit_roundoff(pair.cand_of(match).dtype));
  if (found.calls < 2 || largest - least > kRoundings * roundoff * std::abs(found.value) ||
      std::abs(found.value - 1) < std::max(kLeast, kRoundings * roundoff))
    return std::nullopt;
  return found;
}

}  // namespace convtrace::diff

#include "tools/diff/shown/sums.h"

#include <algorithm>
#include <cmath>

#include "tools/common/element.h"

namespace convtrace::diff {

void Sums::add(const ValueRecord& record) {
  const format::Stats& one = record.stats;
  if (one.count == 0) return;
  count += static_cast<double>(one.count);
  sum += one.mean * static_cast<double>(one.finite);
  l1 += tools::wide_as_double(record.dtype, one.l1);
  squares += one.l2 * one.l2;
  low = std::min(low, tools::extreme_as_double(record.dtype, one.min));
  high = std::max(high, tools::extreme_as_double(record.dtype, one.max));
  least = std::min(least, tools::magnitude_as_double(record.dtype, one.amin_nonzero));
}

bool Sums::equals(const Sums& other) const {
  constexpr double kLargest = 1e-12;  // of sums in f64 that are added in another order
  return count == other.count && low == other.low && high == other.high && least == other.least &&
         std::abs(sum - other.sum) <= kLargest * l1 && std::abs(l1 - other.l1) <= kLargest * l1 &&
         std::abs(squares - other.squares) <= kLargest * squares;
}

/// Sums of few numbers on a coarse grid may agree by chance: about (size / grid)^3 * count
/// different sums are possible.
bool Sums::agree(const Sums& other, double trials) const {
  constexpr double kLeastSums = 1e3;
  const double size = std::sqrt(squares / count) / least;
  // Numbers of one magnitude, such as flags, agree in all these sums.
  return std::max(-low, high) > least && count > 1 && low < high && equals(other) &&
         size * size * size * count > kLeastSums * trials;
}

}  // namespace convtrace::diff

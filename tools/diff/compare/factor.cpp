#include "tools/diff/compare/factor.h"

#include <algorithm>
#include <cmath>

namespace convtrace::diff {
namespace {

/// Scalar product of two sketches in units of 2^exponent.
double product(const format::Sketch& a, const format::Sketch& b, int exponent) {
  const double scale = std::ldexp(1.0, a.exponent + b.exponent - 2 * exponent);
  double sum = 0;
  for (size_t i = 0; i < format::Sketch::kBuckets; ++i) {
    sum += static_cast<double>(a.bucket[i]) * static_cast<double>(b.bucket[i]);
  }
  return sum * scale;
}

}  // namespace

std::optional<Factor> factor_of(const format::Stats& base_stats, const format::Stats& cand_stats) {
  constexpr double kLargestRest = 0.02;
  const format::Sketch &base = base_stats.sketch, &cand = cand_stats.sketch;
  if (!base.is_known() || !cand.is_known()) return std::nullopt;
  const int exponent = std::max(base.exponent, cand.exponent);
  const double bb = product(base, base, exponent), ab = product(cand, base, exponent);
  const double aa = product(cand, cand, exponent);
  if (!(bb > 0) || !(aa > 0)) return std::nullopt;
  const double factor = ab / bb;
  const double rest = std::sqrt(std::max(0.0, aa - factor * ab) / aa);
  if (rest > kLargestRest || std::abs(factor - 1) < 4 * rest || std::abs(factor - 1) < 1e-3)
    return std::nullopt;
  return Factor{factor, rest};
}

}  // namespace convtrace::diff

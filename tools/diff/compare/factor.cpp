#include "tools/diff/compare/factor.h"

#include <algorithm>
#include <cmath>

namespace convtrace::diff {
namespace {

constexpr double kLargestRest = 0.02;

/// Scalar product of two sketches in units of 2^exponent.
double product(const format::Sketch& a, const format::Sketch& b, int exponent) {
  const double scale = std::ldexp(1.0, a.exponent + b.exponent - 2 * exponent);
  double sum = 0;
  for (size_t i = 0; i < format::Sketch::kBuckets; ++i)
    sum += static_cast<double>(a.bucket[i]) * static_cast<double>(b.bucket[i]);
  return sum * scale;
}

}  // namespace

bool Factor::is_one() const { return std::abs(value - 1) < 4 * rest || std::abs(value - 1) < 1e-3; }

std::optional<Factor> multiple_of(const format::Sketch& base, const format::Sketch& cand) {
  if (!base.is_known() || !cand.is_known()) return std::nullopt;
  const int exponent = std::max(base.exponent, cand.exponent);
  const double bb = product(base, base, exponent), ab = product(cand, base, exponent);
  const double aa = product(cand, cand, exponent);
  if (!(bb > 0) || !(aa > 0)) return std::nullopt;
  const double factor = ab / bb;
  const double rest = std::sqrt(std::max(0.0, aa - factor * ab) / aa);
  return rest > kLargestRest ? std::nullopt : std::optional(Factor{factor, rest});
}

format::Sketch minus(const format::Sketch& a, const format::Sketch& b) {
  format::Sketch difference{.exponent = std::max(a.exponent, b.exponent)};
  for (size_t i = 0; i < format::Sketch::kBuckets; ++i)
    difference.bucket[i] =
        static_cast<float>(std::ldexp(double{a.bucket[i]}, a.exponent - difference.exponent) -
                           std::ldexp(double{b.bucket[i]}, b.exponent - difference.exponent));
  return difference;
}

std::optional<Factor> multiple_of(std::span<const double> base, std::span<const double> cand,
                                  double base_norm, double cand_norm) {
  if (base.size() != cand.size()) return std::nullopt;
  double bb = 0, ab = 0, aa = 0;
  size_t numbers = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    bb += base[i] * base[i];
    ab += cand[i] * base[i];
    aa += cand[i] * cand[i];
    numbers += base[i] != 0;
  }
  if (numbers < 2 || !(bb > 0) || !(aa > 0) || !std::isfinite(aa + bb)) return std::nullopt;
  const double factor = ab / bb;
  const double rest = std::sqrt(std::max(0.0, aa - factor * ab) / aa);
  constexpr double kOfNorms = 0.01;  // the elements without samples have the factor, too
  const bool fits = rest <= kLargestRest &&
                    std::abs(cand_norm - std::abs(factor) * base_norm) <= kOfNorms * cand_norm;
  return fits ? std::optional(Factor{factor, rest}) : std::nullopt;
}

std::optional<Factor> factor_of(const format::Stats& base, const format::Stats& cand,
                                std::span<const double> base_samples,
                                std::span<const double> cand_samples) {
  const bool sketched = base.sketch.is_known() && cand.sketch.is_known();
  const auto factor = sketched ? multiple_of(base.sketch, cand.sketch)
                               : multiple_of(base_samples, cand_samples, base.l2, cand.l2);
  return factor && !factor->is_one() ? factor : std::nullopt;
}

}  // namespace convtrace::diff

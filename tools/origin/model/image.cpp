#include "tools/origin/model/image.h"

#include <algorithm>
#include <cmath>

#include "tools/trace/model/distance.h"

namespace convtrace::origin {
namespace {

/// Norms of 16 buckets are estimates: of true ones, more than twice as large once in 10^7.
constexpr double kOfEstimates = 2;
/// The buckets of a sketch are f32 sums in chains of 32 additions.
constexpr double kOfSketch = 32 * 0x1p-24;

/// @return the smallest number above 0, below which results vanish.
double smallest_of(format::DType dtype) {
  using format::DType;
  switch (dtype) {
    case DType::kF16: return 0x1p-24;
    case DType::kBF16: return 0x1p-133;
    case DType::kF8E4M3FN: return 0x1p-9;
    case DType::kF8E5M2: return 0x1p-16;
    case DType::kF64:
    case DType::kC128: return 0x1p-1074;
    default: return 0x1p-149;
  }
}

}  // namespace

Image image_of(const Fingerprint& fingerprint) {
  Image image{};
  const double unit = std::ldexp(1.0, fingerprint.exponent);
  for (size_t i = 0; i < image.size(); ++i)
    image[i] = static_cast<double>(fingerprint.bucket[i]) * unit;
  return image;
}

double product_of(const Image& a, const Image& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double norm_of(const Image& image) { return std::sqrt(product_of(image, image)); }

Image added(const Image& a, const Image& b, double factor) {
  Image sum = a;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor * b[i];
  return sum;
}

double roundoff_of_sums(format::DType dtype) {
  constexpr double kCoarsest = 1.0 / 8;  // f8e5m2
  const double unit = diff::unit_roundoff(dtype);
  return unit <= kCoarsest ? unit : 0;
}

double sum_tolerance(std::span<const Image> parts, const Image& sum, format::DType dtype,
                     uint64_t count) {
  const double n = static_cast<double>(parts.size());
  double norms = 0, largest = 0, squares = 0;
  for (const Image& part : parts) {
    const double norm = norm_of(part);
    norms += norm;
    largest = std::max(largest, norm);
    squares += norm * norm;
  }
  // Each addition rounds a partial sum. Of which members it is depends on the order, so a partial
  // sum of k members counts as the largest of: the first k of them, k average ones of any
  // direction, and the largest member alone.
  Image partial{};
  double rounded = 0;
  for (size_t k = 0; k < parts.size(); ++k) {
    partial = added(partial, parts[k], 1);
    if (k == 0) continue;
    const double average = std::sqrt(squares * static_cast<double>(k + 1) / n);
    rounded += std::max({norm_of(partial), largest, average});
  }
  const double u = roundoff_of_sums(dtype);
  // Never more than (n - 1) u sum |part|; a division or a product by 1/n rounds once more a member.
  const double by_additions = std::min(u * rounded, (n - 1) * u * norms);
  const double by_scaling = u * (norms + norm_of(sum));
  const double underflow = n * smallest_of(dtype) * std::sqrt(static_cast<double>(count));
  return kOfEstimates * by_additions + by_scaling + underflow + kOfSketch * (norms + norm_of(sum));
}

Fit fit_of(const Image& difference, std::span<const Image> parts) {
  Fit fit;
  const double whole = norm_of(difference);
  double best = INFINITY, second = INFINITY;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double square = product_of(parts[i], parts[i]);
    if (square == 0) continue;
    const double factor = product_of(difference, parts[i]) / square;
    const double rest = norm_of(added(difference, parts[i], -factor));
    if (rest < best) {
      second = best;
      best = rest;
      fit.member = i;
      fit.factor = factor;
    } else {
      second = std::min(second, rest);
    }
  }
  fit.rest = whole > 0 && std::isfinite(best) ? best / whole : 1;
  fit.second_rest = whole > 0 && std::isfinite(second) ? second / whole : 1;
  return fit;
}

}  // namespace convtrace::origin

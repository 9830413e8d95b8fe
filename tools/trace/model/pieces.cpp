#include "tools/trace/model/pieces.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/common/element.h"

namespace convtrace::diff {
namespace {

using format::NumberClass;
using format::Scalar;
using format::Sketch;
using format::Stats;
using format::WideScalar;

constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

WideScalar added(NumberClass number, WideScalar a, WideScalar b) {
  if (number == NumberClass::kFloat) return WideScalar::f64(a.as_f64() + b.as_f64());
  const uint64_t low = a.lo + b.lo;
  return {low, a.hi + b.hi + (low < a.lo ? 1 : 0)};
}

Scalar extreme(NumberClass number, Scalar a, Scalar b, bool larger) {
  switch (number) {
    case NumberClass::kFloat: {
      const double x = a.as_f64(), y = b.as_f64();  // NaN: no finite value
      return Scalar::f64(larger ? std::fmax(x, y) : std::fmin(x, y));
    }
    case NumberClass::kSigned: {
      const int64_t x = a.as_i64(), y = b.as_i64();
      return Scalar::i64(larger ? std::max(x, y) : std::min(x, y));
    }
    case NumberClass::kUnsigned:
    case NumberClass::kBytes: break;
  }
  const uint64_t x = a.as_u64(), y = b.as_u64();
  return Scalar::u64(larger ? std::max(x, y) : std::min(x, y));
}

/// Extrema of integers are 0 where there are none: of an empty tensor, and `amin_nonzero` of zeros.
void add_extrema(NumberClass number, Stats& whole, const Stats& piece) {
  const NumberClass magnitude = number == NumberClass::kSigned ? NumberClass::kUnsigned : number;
  const bool counts = number == NumberClass::kFloat || (whole.count != 0 && piece.count != 0);
  if (counts) {
    whole.min = extreme(number, whole.min, piece.min, false);
    whole.max = extreme(number, whole.max, piece.max, true);
  } else if (piece.count != 0) {
    whole.min = piece.min;
    whole.max = piece.max;
  }
  whole.amax = extreme(magnitude, whole.amax, piece.amax, true);
  const bool both = whole.amin_nonzero.bits != 0 && piece.amin_nonzero.bits != 0;
  whole.amin_nonzero =
      number == NumberClass::kFloat || both
          ? extreme(magnitude, whole.amin_nonzero, piece.amin_nonzero, false)
          : Scalar::u64(std::max(whole.amin_nonzero.bits, piece.amin_nonzero.bits));
}

void set_moments(format::DType dtype, Stats& stats) {
  stats.mean = stats.std = kNotKnown;
  if (stats.finite == 0) return;
  const auto finite = static_cast<double>(stats.finite);
  stats.mean = tools::wide_as_double(dtype, stats.sum) / finite;
  stats.std = std::sqrt(std::max(0.0, stats.l2 * stats.l2 / finite - stats.mean * stats.mean));
}

Sketch mean_sketch(std::span<const Stats> tensors) {
  Sketch mean{.exponent = 0};
  for (const Stats& one : tensors) {
    if (!one.sketch.is_known()) return {};
    mean.exponent = std::max(mean.exponent, one.sketch.exponent);
  }
  for (size_t b = 0; b < Sketch::kBuckets; ++b) {
    double sum = 0;
    for (const Stats& one : tensors)
      sum += std::ldexp(static_cast<double>(one.sketch.bucket[b]),
                        one.sketch.exponent - mean.exponent);
    mean.bucket[b] = static_cast<float>(sum / static_cast<double>(tensors.size()));
  }
  return mean;
}

}  // namespace

void add_piece(format::DType dtype, Stats& whole, const Stats& piece) {
  const NumberClass number = format::number_class(dtype);
  add_extrema(number, whole, piece);
  whole.count += piece.count;
  for (uint64_t Stats::*const count :
       {&Stats::finite, &Stats::nan, &Stats::pos_inf, &Stats::neg_inf, &Stats::pos_zero,
        &Stats::neg_zero, &Stats::positive, &Stats::negative, &Stats::subnormal, &Stats::saturated})
    whole.*count += piece.*count;
  whole.sum = added(number, whole.sum, piece.sum);
  whole.l1 = added(number, whole.l1, piece.l1);
  whole.l2 = std::hypot(whole.l2, piece.l2);
  set_moments(dtype, whole);
  whole.hash = 0;
  whole.sketch = {};
}

void scale(Stats& stats, double factor) {
  for (Scalar Stats::*const number : {&Stats::min, &Stats::max, &Stats::amax, &Stats::amin_nonzero})
    stats.*number = Scalar::f64((stats.*number).as_f64() * factor);
  for (WideScalar Stats::*const number : {&Stats::sum, &Stats::l1})
    stats.*number = WideScalar::f64((stats.*number).as_f64() * factor);
  for (double Stats::*const number : {&Stats::l2, &Stats::mean, &Stats::std})
    stats.*number *= factor;
  for (float& bucket : stats.sketch.bucket) bucket *= static_cast<float>(factor);
}

Stats mean_of(std::span<const Stats> tensors) {
  Stats mean;
  mean.count = tensors.front().count;
  double sum = 0;
  for (const Stats& one : tensors) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    sum += one.sum.as_f64();
    if (one.pos_inf != 0) sum += kInfinity;
    if (one.neg_inf != 0) sum -= kInfinity;
    if (one.nan != 0) sum = kNotKnown;
  }
  sum /= static_cast<double>(tensors.size());
  mean.nan = std::isnan(sum) ? 1 : 0;
  mean.pos_inf = std::isinf(sum) && sum > 0 ? 1 : 0;
  mean.neg_inf = std::isinf(sum) && sum < 0 ? 1 : 0;
  mean.finite = mean.count - mean.nan - mean.pos_inf - mean.neg_inf;
  const bool is_number = mean.count == 1 && mean.finite == 1;
  const double value = is_number ? sum : kNotKnown, size = std::abs(value);
  mean.min = mean.max = Scalar::f64(value);
  mean.amax = mean.amin_nonzero = Scalar::f64(size);
  mean.sum = WideScalar::f64(mean.finite == 0 ? 0 : sum);
  mean.l1 = WideScalar::f64(size);
  mean.l2 = size;
  mean.mean = sum / static_cast<double>(mean.finite);
  mean.std = is_number ? 0 : kNotKnown;
  mean.sketch = mean_sketch(tensors);
  return mean;
}

}  // namespace convtrace::diff

#include "cupti/stats/finalize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cupti/stats/thread/exact_sums.h"
#include "cupti/stats/tile/hash.h"
#include "cupti/stats/tile/sketch.h"

namespace convtrace::stats {
namespace {

using format::Scalar;
using format::Stats;
using format::WideScalar;

/// Finite values give a NaN only where sums leave the range of f64 (Inf - Inf), and which NaN
/// depends on the processor.
double if_not_nan(double value, double otherwise) { return value != value ? otherwise : value; }

template <DType D>
Scalar scalar_of_key(int64_t key) {
  using E = Element<D>;
  const auto bits = E::bits_of_key(static_cast<typename E::Key>(key));
  if constexpr (E::kFloat) {
    return Scalar::f64(E::value(bits));
  } else {
    return Scalar{static_cast<uint64_t>(E::value(bits))};
  }
}

template <DType D>
Scalar scalar_of_magnitude(uint64_t magnitude) {
  using E = Element<D>;
  if constexpr (E::kFloat) {
    return Scalar::f64(E::value(static_cast<typename E::Bits>(magnitude)));
  } else {
    return Scalar::u64(magnitude);
  }
}

template <DType D>
void set_extremes(const Extremes& extremes, Stats& stats) {
  using E = Element<D>;
  const Scalar none = E::kFloat ? Scalar::f64(std::numeric_limits<double>::quiet_NaN()) : Scalar{};
  stats.min = stats.max = stats.amax = stats.amin_nonzero = none;
  if (stats.finite > 0) {
    const auto magnitude_of = [](int64_t key) {
      return uint64_t{E::magnitude(E::bits_of_key(static_cast<typename E::Key>(key)))};
    };
    const uint64_t a = magnitude_of(extremes.min_key);
    const uint64_t b = magnitude_of(extremes.max_key);
    stats.min = scalar_of_key<D>(extremes.min_key);
    stats.max = scalar_of_key<D>(extremes.max_key);
    stats.amax = scalar_of_magnitude<D>(a > b ? a : b);
  }
  if (extremes.min_below != UINT64_MAX)
    stats.amin_nonzero = scalar_of_magnitude<D>(extremes.min_below + 1);
}

/// @return the variance of integers whose sums are exact; -1 of others.
template <DType D>
double exact_variance(const Partial& total) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (!kHasExactSums<D> || total.squares >= kExact) return -1;
  const auto n = static_cast<Int128>(total.counts.count);
  const auto sum = static_cast<Int128>(wide(total.int_sum));
  const Int128 spread = n * static_cast<Int128>(total.squares) - sum * sum;
  return static_cast<double>(spread) / (static_cast<double>(n) * static_cast<double>(n));
}

template <DType D>
void set_sums(const Partial& total, Stats& stats) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  double sum = if_not_nan(total.sum, kNan);
  if constexpr (Element<D>::kFloat) {
    stats.sum = WideScalar::f64(sum);
    stats.l1 = WideScalar::f64(total.l1);
  } else {
    stats.sum = {total.int_sum[0], total.int_sum[1]};
    stats.l1 = {total.int_l1[0], total.int_l1[1]};
    sum = static_cast<double>(static_cast<Int128>(wide(total.int_sum)));
  }
  stats.l2 = __builtin_sqrt(total.squares);
  if (stats.finite == 0) {
    stats.mean = stats.std = kNan;
    return;
  }
  const double n = total.moments.n;
  stats.mean = if_not_nan(sum / n, kNan);
  const double variance = exact_variance<D>(total);
  if (variance >= 0) {
    stats.std = __builtin_sqrt(variance);
    return;
  }
  stats.std =
      __builtin_sqrt(if_not_nan(total.moments.m2 / n, std::numeric_limits<double>::infinity()));
}

/// @param sums of float elements, scaled as sketch.h has it.
format::Sketch make_sketch(const double (&sums)[kSketchBuckets]) {
  double largest = 0;
  for (const double sum : sums) largest = std::max(largest, magnitude(sum));
  format::Sketch sketch;
  if (!std::isfinite(largest)) return sketch;
  int exponent = 0;
  // Rounded to f32 it may be 1.
  if (static_cast<float>(std::frexp(largest, &exponent)) == 1) ++exponent;
  // ldexp(sums[i], -exponent), by two powers of two of which each is in the range of f64. What the
  // first product loses of a subnormal is far below the smallest f32.
  const double half = std::ldexp(1.0, -exponent / 2);
  const double rest = std::ldexp(1.0, -exponent - -exponent / 2);
  for (uint32_t i = 0; i < kSketchBuckets; ++i)
    sketch.bucket[i] = static_cast<float>(sums[i] * half * rest) + 0.0F;  // no -0
  sketch.exponent = static_cast<int16_t>(largest == 0 ? 0 : exponent - kSketchScale);
  return sketch;
}

}  // namespace

Stats finalize(const Partial& total, DType dtype) noexcept {
  Stats stats;
  const Counts& counts = total.counts;
  stats.count = counts.count;
  stats.finite = counts.finite();
  stats.pos_zero = counts.pos_zero;
  stats.positive = counts.positive();
  if (dtype == DType::kUnknown) return stats;  // bytes: how many, and how many are zero
  stats.nan = counts.nan;
  stats.pos_inf = counts.pos_inf;
  stats.neg_inf = counts.neg_inf;
  stats.neg_zero = counts.neg_zero;
  stats.negative = counts.negative;
  stats.subnormal = counts.subnormal;
  stats.saturated = counts.saturated;
  switch (walked_dtype(dtype)) {
#define CONVTRACE_X(D)                                           \
  case DType::D:                                                 \
    set_extremes<DType::D>(total.extremes, stats);               \
    set_sums<DType::D>(total, stats);                            \
    if (kHasSketch<DType::D> && stats.count > format::kMaxWhole) \
      stats.sketch = make_sketch(total.sketch);                  \
    break;
    CONVTRACE_WALKED_DTYPES(CONVTRACE_X)
#undef CONVTRACE_X
    default: break;
  }
  return stats;
}

uint64_t finalize_hashes(uint64_t* ranges, const Tiling& tiling) noexcept {
  const uint32_t last = hashed_ranges(tiling) - 1;
  const uint64_t behind = last * tiling.range_bytes();
  ranges[last] = residue_sum(ranges[last], hash_ones(tiling.bytes - behind));
  if (last == 0) return ranges[0];
  const uint64_t ones = hash_ones(tiling.range_bytes());
  for (uint32_t i = 0; i < last; ++i) ranges[i] = residue_sum(ranges[i], ones);
  return concat_hashes(tiling.range_bytes(), last + 1, [&](uint32_t i) { return ranges[i]; });
}

}  // namespace convtrace::stats

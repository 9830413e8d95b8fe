#pragma once
/// @file partial.h
/// Statistics of a range of elements, in a form that can be merged.
///
/// Place:    a device block or a CPU writes a tile's Partial; merge.h combines those of a tensor.
///           Fixed layout: it is copied between device and host as it is.

#include <cstdint>

#include "cupti/stats/tile/arith.h"
#include "format/model/dtype.h"

namespace convtrace::stats {

inline constexpr uint32_t kSketchBuckets = 16;

/// Arithmetic with which sums are computed; stored as TensorStats::variant.
enum class Variant : uint32_t {
  kWide = 0,     ///< f64 (wide_sums.h); integers of 8 and 16 bits: exact (exact_sums.h)
  kNarrow = 1,   ///< f32 where f64 is slow: pairs of f32 (narrow_sums.h)
  kChunked = 2,  ///< floats of 16 bits and less: f32 within a chunk (chunk_sums.h)
};

/// @param wanted  the variant for f32. @return the variant with which a walked type is summed.
CONVTRACE_HD constexpr Variant variant_of(format::DType dtype, Variant wanted) {
  if (format::number_class(dtype) != format::NumberClass::kFloat) return Variant::kWide;
  if (format::element_bytes(dtype) <= 2) return Variant::kChunked;
  return dtype == format::DType::kF32 ? wanted : Variant::kWide;
}

/// Exact counts that determine all others: finite = count - nan - infinities,
/// positive = count - nan - negative - zeros.
struct Counts {
  uint64_t count = 0;
  uint64_t nan = 0;
  uint64_t pos_inf = 0;
  uint64_t neg_inf = 0;
  uint64_t pos_zero = 0;
  uint64_t neg_zero = 0;
  uint64_t negative = 0;  ///< below zero, -Inf included
  uint64_t subnormal = 0;
  uint64_t saturated = 0;

  CONVTRACE_HD uint64_t finite() const { return count - nan - pos_inf - neg_inf; }
  CONVTRACE_HD uint64_t positive() const { return count - nan - negative - pos_zero - neg_zero; }
};

/// Extremes of finite values as keys and magnitudes of dtype_decode.h; as initialised: of none.
struct Extremes {
  int64_t min_key = INT64_MAX;
  int64_t max_key = INT64_MIN;
  uint64_t min_below = UINT64_MAX;  ///< smallest magnitude that is not zero, less one
};

/// Count, mean and sum of squared deviations of finite values. mean = shift + shift_low + offset:
/// the shift is an element's value in two parts (an i64 does not fit one f64), so that differences
/// of shifts are exact and offset keeps its precision however far the values are from zero.
struct Moments {
  double n = 0;
  double shift = 0;
  double shift_low = 0;
  double offset = 0;
  double m2 = 0;
};

struct Partial {
  Counts counts;
  Extremes extremes;
  Moments moments;
  double sum = 0;            ///< floats: sum of the finite values
  double l1 = 0;             ///< floats: sum of the magnitudes of the finite values
  double squares = 0;        ///< sum of the squares of the finite values, unshifted, for l2
  uint64_t int_sum[2] = {};  ///< integers: 128 bits, two's complement, low half first
  uint64_t int_l1[2] = {};
  uint64_t hash = 0;  ///< hash without ones, as if the (first) tile were the tensor's first
  double sketch[kSketchBuckets] = {};  ///< floats; scaled as sketch.h has it
};

CONVTRACE_HD UInt128 wide(const uint64_t (&halves)[2]) {
  return (static_cast<UInt128>(halves[1]) << 64) | halves[0];
}
CONVTRACE_HD void store_wide(UInt128 value, uint64_t (&halves)[2]) {
  halves[0] = static_cast<uint64_t>(value);
  halves[1] = static_cast<uint64_t>(value >> 64);
}

CONVTRACE_HD Counts merge(Counts a, const Counts& b) {
  a.count += b.count;
  a.nan += b.nan;
  a.pos_inf += b.pos_inf;
  a.neg_inf += b.neg_inf;
  a.pos_zero += b.pos_zero;
  a.neg_zero += b.neg_zero;
  a.negative += b.negative;
  a.subnormal += b.subnormal;
  a.saturated += b.saturated;
  return a;
}

CONVTRACE_HD Extremes merge(Extremes a, const Extremes& b) {
  a.min_key = b.min_key < a.min_key ? b.min_key : a.min_key;
  a.max_key = b.max_key > a.max_key ? b.max_key : a.max_key;
  a.min_below = b.min_below < a.min_below ? b.min_below : a.min_below;
  return a;
}

/// @param b what follows `a` in the tensor. @return all of both but the moments (merge.h), and `a`'s
/// hash.
CONVTRACE_HD Partial merge(const Partial& a, const Partial& b) {
  Partial merged;
  merged.counts = merge(a.counts, b.counts);
  merged.extremes = merge(a.extremes, b.extremes);
  merged.sum = add(a.sum, b.sum);
  merged.l1 = add(a.l1, b.l1);
  merged.squares = add(a.squares, b.squares);
  store_wide(wide(a.int_sum) + wide(b.int_sum), merged.int_sum);
  store_wide(wide(a.int_l1) + wide(b.int_l1), merged.int_l1);
  merged.hash = a.hash;
  for (uint32_t i = 0; i < kSketchBuckets; ++i) merged.sketch[i] = add(a.sketch[i], b.sketch[i]);
  return merged;
}

}  // namespace convtrace::stats

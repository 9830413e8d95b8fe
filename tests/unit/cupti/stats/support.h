#pragma once
/// @file support.h
/// Short forms for tests of statistics: make a tensor, compute it, compare with the reference.

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "cupti/stats/compute.h"
#include "cupti/stats/tile/dtype_decode.h"
#include "tests/support/catch.h"
#include "tests/support/same_stats.h"
#include "tests/unit/cupti/stats/reference.h"

namespace convtrace::stats::test {

inline constexpr format::DType kAllDTypes[] = {
    format::DType::kF64,      format::DType::kF32,      format::DType::kF16,
    format::DType::kBF16,     format::DType::kF8E4M3FN, format::DType::kF8E5M2,
    format::DType::kI8,       format::DType::kU8,       format::DType::kI16,
    format::DType::kU16,      format::DType::kI32,      format::DType::kU32,
    format::DType::kI64,      format::DType::kU64,      format::DType::kBool,
    format::DType::kC64,      format::DType::kC128,     format::DType::kF4E2M1FN,
    format::DType::kF8E8M0FNU};

inline StatsResult compute(const TensorView& view,
                           format::Capture capture = format::Capture::kStats) {
  StatsResult result;
  const Status status = compute_on_cpu(view, capture, result);
  REQUIRE(status.ok());
  return result;
}

template <typename T>
TensorView view_of(const std::vector<T>& values, format::DType dtype) {
  return dense_view(values.data(), dtype, values.size() * sizeof(T) / format::element_bytes(dtype));
}

template <typename T>
uint64_t hash_of(const std::vector<T>& values) {
  return compute(dense_view(values.data(), format::DType::kU8, values.size() * sizeof(T)),
                 format::Capture::kHash)
      .stats.hash;
}

inline uint64_t hash_of(const std::vector<uint8_t>& bytes) { return hash_of<uint8_t>(bytes); }

/// `count` elements of any bit pattern.
inline std::vector<uint8_t> random_bytes(format::DType dtype, uint64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<uint8_t> bytes(count * format::element_bytes(dtype));
  for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

/// `count` finite elements: floats of ordinary size; on both sides of zero if the type has two.
inline std::vector<uint8_t> ordinary_bytes(format::DType dtype, uint64_t count, uint64_t seed) {
  std::vector<uint8_t> bytes = random_bytes(dtype, count, seed);
  const uint32_t size = format::element_bytes(walked_dtype(dtype));
  for (size_t i = size - 1; i < bytes.size(); i += size) {
    // An exponent in the middle.
    const auto top = static_cast<uint8_t>((bytes[i] & 0x80) | (0x3A + bytes[i] % 4));
    bytes[i] = dtype == format::DType::kBool ? bytes[i] % 2 : top;
  }
  return bytes;
}

/// Equal to the last bit, NaNs included.
inline void require_same(const StatsResult& a, const StatsResult& b) {
  REQUIRE(convtrace::test::same_bits(a.stats, b.stats));
  REQUIRE(a.variant == b.variant);
  REQUIRE(a.range_count == b.range_count);
  REQUIRE(std::memcmp(a.range_hashes, b.range_hashes, a.range_count * sizeof(uint64_t)) == 0);
  REQUIRE(a.sample_bytes == b.sample_bytes);
  REQUIRE(std::memcmp(a.samples, b.samples, a.sample_bytes) == 0);
}

/// How far floating sums may be from the reference, over the sum of magnitudes.
inline double tolerance(format::DType dtype) {
  return format::number_class(dtype) == format::NumberClass::kFloat &&
                 format::element_bytes(dtype) <= 2
             ? 1e-7
             : 1e-12;
}

inline void require_close(const char* what, double got, double want, double scale) {
  INFO(what << ": got " << got << ", want " << want);
  if (std::isnan(want)) {
    REQUIRE(std::isnan(got));
  } else {
    REQUIRE(std::fabs(got - want) <= scale);
  }
}

/// Exact fields equal, floating sums within tolerance(). @return the reference.
inline format::Stats require_matches_reference(const TensorView& view) {
  const format::Stats got = compute(view).stats;
  const format::Stats want = reference_stats(view);
  REQUIRE(got.count == want.count);
  REQUIRE(got.finite == want.finite);
  REQUIRE(got.nan == want.nan);
  REQUIRE(got.pos_inf == want.pos_inf);
  REQUIRE(got.neg_inf == want.neg_inf);
  REQUIRE(got.pos_zero == want.pos_zero);
  REQUIRE(got.neg_zero == want.neg_zero);
  REQUIRE(got.positive == want.positive);
  REQUIRE(got.negative == want.negative);
  REQUIRE(got.subnormal == want.subnormal);
  REQUIRE(got.saturated == want.saturated);
  REQUIRE(got.min == want.min);
  REQUIRE(got.max == want.max);
  REQUIRE(got.amax == want.amax);
  REQUIRE(got.amin_nonzero == want.amin_nonzero);
  const double off = tolerance(view.dtype);
  const double mean_of_magnitudes = mean_magnitude(view);
  if (format::number_class(view.dtype) == format::NumberClass::kFloat) {
    const double scale = off * mean_of_magnitudes * static_cast<double>(want.finite);
    require_close("sum", got.sum.as_f64(), want.sum.as_f64(), scale);
    require_close("l1", got.l1.as_f64(), want.l1.as_f64(), scale);
  } else {
    REQUIRE(got.sum == want.sum);
    REQUIRE(got.l1 == want.l1);
  }
  require_close("l2", got.l2, want.l2, off * want.l2);
  require_close("mean", got.mean, want.mean, off * mean_of_magnitudes);
  require_close("std", got.std, want.std, off * want.std);
  return want;
}

}  // namespace convtrace::stats::test

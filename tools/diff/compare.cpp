#include "tools/diff/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tools/common/element.h"

namespace convtrace::diff {
namespace {

using format::DType;
using format::NumberClass;
using format::Stats;

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

constexpr size_t index_of(Field field) { return static_cast<size_t>(field); }

/// In a field that averages over elements, roundings of narrow dtypes cancel; beyond 4096 elements
/// what remains is systematic, not random.
double averaged_epsilon(DType dtype, uint64_t count) {
  const double eps = epsilon(dtype);
  if (tools::component_bytes(dtype) > 2 || count == 0) return eps;
  return eps / std::sqrt(static_cast<double>(std::min<uint64_t>(count, 4096)));
}

/// The fields before it average over elements.
constexpr size_t kNotAveraged = index_of(Field::kL2) + 1;

/// Infinite when only one of them is a number.
double distance(double a, double b) {
  const double difference = std::abs(a - b);
  if (!std::isnan(difference)) return difference;
  return a == b || (std::isnan(a) && std::isnan(b)) ? 0 : kInfinite;
}

double finite_or_zero(double value) { return std::isfinite(value) ? std::abs(value) : 0; }

double larger(double a, double b) { return std::max(finite_or_zero(a), finite_or_zero(b)); }

FieldValues fields_of(const Stats& s, DType dtype) {
  return {s.mean,
          s.std,
          tools::wide_as_double(dtype, s.l1),
          s.l2,
          tools::extreme_as_double(dtype, s.min),
          tools::extreme_as_double(dtype, s.max),
          tools::magnitude_as_double(dtype, s.amax),
          0};
}

uint64_t non_finite(const Stats& stats) { return stats.nan + stats.pos_inf + stats.neg_inf; }

/// The common case of sample_distance: numbers only, so that no NaN needs care.
double sample_distance_f32(const std::byte* a, const std::byte* b, size_t bytes) {
  double largest = 0;
  for (size_t at = 0; at + sizeof(float) <= bytes; at += sizeof(float)) {
    float x, y;
    std::memcpy(&x, a + at, sizeof x);
    std::memcpy(&y, b + at, sizeof y);
    largest = std::max(largest, std::abs(static_cast<double>(x) - static_cast<double>(y)));
  }
  return largest;
}

double sample_distance(const ValueView& base, const ValueView& cand) {
  const DType dtype = base.record.dtype, other = cand.record.dtype;
  const std::byte* a = base.samples.data();
  const std::byte* b = cand.samples.data();
  const bool numbers = non_finite(base.record.stats) + non_finite(cand.record.stats) == 0;
  if (dtype == DType::kF32 && other == dtype && numbers) {
    return sample_distance_f32(a, b, std::min(base.samples.size(), cand.samples.size()));
  }
  const size_t step = tools::component_bytes(dtype), other_step = tools::component_bytes(other);
  const size_t count = std::min(base.samples.size() / step, cand.samples.size() / other_step);
  double largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, distance(tools::decode_component(dtype, a + i * step),
                                         tools::decode_component(other, b + i * other_step)));
  }
  return largest;
}

Comparison decided(Class verdict, Field field, double difference, double tolerance, double z) {
  return {verdict, field, difference, tolerance, z, true};
}

/// Only hashes can be held against each other, and they differ.
Comparison compare_hashes(DType dtype, bool padded, const NoiseBand* noise) {
  const NumberClass number = format::number_class(dtype);
  const bool exact = number == NumberClass::kSigned || number == NumberClass::kUnsigned;
  if (noise != nullptr && noise->bits) {
    return decided(Class::kWithinNoise, Field::kHash, kNoNumber, kNoNumber, 0);
  }
  if (!exact || padded) {
    return decided(Class::kBitDifference, Field::kHash, kNoNumber, kNoNumber, 0);
  }
  return decided(Class::kDiverged, Field::kHash, kNoNumber, 0, kInfinite);
}

bool same_non_finite(const Stats& a, const Stats& b) {
  return a.nan == b.nan && a.pos_inf == b.pos_inf && a.neg_inf == b.neg_inf;
}

Comparison compare_non_finite(const Stats& base, const Stats& cand) {
  const double difference =
      distance(static_cast<double>(base.nan), static_cast<double>(cand.nan)) +
      distance(static_cast<double>(base.pos_inf), static_cast<double>(cand.pos_inf)) +
      distance(static_cast<double>(base.neg_inf), static_cast<double>(cand.neg_inf));
  const bool born = non_finite(base) == 0 || non_finite(cand) == 0;
  return decided(born ? Class::kNanBorn : Class::kDiverged, Field::kNonFinite, difference, 0,
                 kInfinite);
}

/// Which field is the largest is anybody's guess: to branch on it would cost more than all the
/// rest.
size_t first_largest(const FieldValues& values) {
  double largest = values[0];
  for (const double value : values) largest = std::max(largest, value);
  unsigned places = 0;
  for (size_t i = 0; i < kMeasuredFields; ++i) places |= (values[i] == largest ? 1u : 0u) << i;
  return static_cast<size_t>(std::countr_zero(places | 1u << (kMeasuredFields - 1)));
}

Comparison compare_statistics(const ValueView& base, const ValueView& cand, const NoiseBand* noise,
                              std::optional<double> relative) {
  const DType dtype = base.record.dtype;
  const double eps[2] = {epsilon(dtype), averaged_epsilon(dtype, base.record.stats.count)};
  const Measured measured = measure(base, cand);
  FieldValues tolerance, z;
  const double allowed = relative ? *relative : kEpsFactor * eps[0];
  const double averaged = relative ? *relative : kEpsFactor * eps[1];
  for (size_t i = 0; i < kNotAveraged; ++i) tolerance[i] = averaged * measured.scale[i];
  for (size_t i = kNotAveraged; i < kMeasuredFields; ++i)
    tolerance[i] = allowed * measured.scale[i];
  if (noise != nullptr) {
    for (size_t i = 0; i < kMeasuredFields; ++i) {
      tolerance[i] =
          std::max({tolerance[i], noise->absolute[i], noise->relative[i] * measured.scale[i]});
    }
  }
  // No branch here, so that the divisions go two at a time; 0 is put right below.
  for (size_t i = 0; i < kMeasuredFields; ++i) {
    z[i] = measured.difference[i] / std::max(tolerance[i], std::numeric_limits<double>::min());
  }
  const size_t field = first_largest(z);
  Comparison worst = decided(Class::kWithinNoise, Field::kHash, 0, 0, 0);
  if (z[field] > 0) {
    worst = decided(Class::kWithinNoise, static_cast<Field>(field), measured.difference[field],
                    tolerance[field], tolerance[field] > 0 ? z[field] : kInfinite);
  }
  // Integers are exact: other bytes with equal statistics are still other values.
  const bool exact = eps[0] == 0 && !relative && (noise == nullptr || !noise->bits);
  if (worst.z > (relative ? 1 : kSuspiciousLimit) || exact) {
    worst.verdict = Class::kDiverged;
  } else if (worst.z > 1) {
    worst.verdict = Class::kSuspicious;
  }
  return worst;
}

bool same_shape(const ValueView& base, const ValueView& cand) {
  if (base.record.stats.count != cand.record.stats.count) return false;
  return !base.record.has_shape || !cand.record.has_shape ||
         std::ranges::equal(base.shape, cand.shape);
}

}  // namespace

double epsilon(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kC128:
      return 0x1p-52;
    case DType::kF32:
    case DType::kC64:
      return 0x1p-23;
    case DType::kF16:
      return 0x1p-10;
    case DType::kBF16:
      return 0x1p-7;
    case DType::kF8E4M3FN:
      return 0x1p-3;
    case DType::kF8E5M2:
      return 0x1p-2;
    default:
      return 0;
  }
}

FieldValues tolerances(DType dtype, uint64_t count) {
  const double averaged = kEpsFactor * averaged_epsilon(dtype, count);
  const double single = kEpsFactor * epsilon(dtype);
  FieldValues values;
  for (size_t i = 0; i < kMeasuredFields; ++i) values[i] = i < kNotAveraged ? averaged : single;
  return values;
}

void widen_band(FieldValues& band, const FieldValues& seen) {
  for (size_t i = 0; i < kMeasuredFields; ++i) {
    if (std::isfinite(seen[i])) band[i] = std::max(band[i], seen[i]);
  }
}

#define CONVTRACE_X(name, text) text,
std::string_view to_string(Class value) {
  constexpr std::string_view kTexts[] = {CONVTRACE_DIFF_CLASSES(CONVTRACE_X)};
  static_assert(std::size(kTexts) == kClassCount);
  return kTexts[static_cast<size_t>(value)];
}

std::string_view to_string(Field value) {
  constexpr std::string_view kTexts[] = {CONVTRACE_DIFF_FIELDS(CONVTRACE_X)};
  return kTexts[static_cast<size_t>(value)];
}
#undef CONVTRACE_X

Measured measure(const ValueView& base, const ValueView& cand) {
  const FieldValues a = fields_of(base.record.stats, base.record.dtype);
  const FieldValues b = fields_of(cand.record.stats, cand.record.dtype);
  Measured measured;
  double sum = 0;  // NaN if a difference is
  for (size_t i = 0; i < kMeasuredFields; ++i) {
    measured.difference[i] = std::abs(a[i] - b[i]);
    sum += measured.difference[i];
  }
  if (std::isnan(sum)) {
    for (size_t i = 0; i < kMeasuredFields; ++i) measured.difference[i] = distance(a[i], b[i]);
  }
  measured.difference[index_of(Field::kSamples)] = sample_distance(base, cand);

  const double largest = larger(a[index_of(Field::kAmax)], b[index_of(Field::kAmax)]);
  const double l1 = larger(a[index_of(Field::kL1)], b[index_of(Field::kL1)]);
  const double l2 = larger(a[index_of(Field::kL2)], b[index_of(Field::kL2)]);
  const uint64_t finite = std::min(base.record.stats.finite, cand.record.stats.finite);
  const double typical = finite == 0 ? 0 : l2 / std::sqrt(static_cast<double>(finite));  // rms
  measured.scale = {typical, typical, l1, l2, largest, largest, largest, typical};
  return measured;
}

Comparison compare(const ValueView& base, const ValueView& cand, const NoiseBand* noise,
                   std::optional<double> relative) {
  const ValueRecord& a = base.record;
  const ValueRecord& b = cand.record;
  const bool padded = a.extent == format::Extent::kBlock || b.extent == format::Extent::kBlock;
  if (a.dtype != b.dtype) {
    return decided(Class::kShapeOrDtypeMismatch, Field::kDType, kNoNumber, kNoNumber, kInfinite);
  }
  if (!padded && !same_shape(base, cand)) {
    return decided(Class::kShapeOrDtypeMismatch, Field::kShape, kNoNumber, kNoNumber, kInfinite);
  }
  if (a.stats.hash == b.stats.hash) return {};
  const bool hash_only = a.capture == format::Capture::kHash || b.capture == format::Capture::kHash;
  const bool bytes_only = format::number_class(a.dtype) == NumberClass::kBytes;
  if (a.unwritten || b.unwritten) return kUnwritten;
  if (hash_only || padded || bytes_only) return compare_hashes(a.dtype, padded, noise);
  if (!same_non_finite(a.stats, b.stats)) return compare_non_finite(a.stats, b.stats);
  return compare_statistics(base, cand, noise, relative);
}

}  // namespace convtrace::diff

#include "tools/diff/compare/compare.h"

#include <algorithm>
#include <tuple>

#include "tools/common/element.h"

namespace convtrace::diff {
namespace {

using format::DType;
using format::NumberClass;
using format::Sketch;
using format::Stats;

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

/// Squared differences of the samples, with their number.
struct SampleDistance {
  double squares = 0;
  size_t count = 0;
};

SampleDistance sample_distance(const ValueView& base, const ValueView& cand) {
  const DType dtype = base.record.dtype, other = cand.record.dtype;
  const size_t step = tools::component_bytes(dtype), other_step = tools::component_bytes(other);
  SampleDistance distance;
  distance.count = std::min(base.samples.size() / step, cand.samples.size() / other_step);
  std::vector<double> a(distance.count), b(distance.count);
  for (size_t i = 0; i < distance.count; ++i) {
    a[i] = tools::decode_component(dtype, base.samples.data() + i * step);
    b[i] = tools::decode_component(other, cand.samples.data() + i * other_step);
  }
  // In which order pieces stand is not known. No order brings two sets of numbers nearer than the
  // sorted one.
  if (base.record.in_pieces || cand.record.in_pieces) {
    const auto before = [](double x, double y) { return std::strong_order(x, y) < 0; };
    std::ranges::sort(a, before);
    std::ranges::sort(b, before);
  }
  for (size_t i = 0; i < distance.count; ++i) {
    const double difference = a[i] - b[i];
    // Elements that are not finite are compared by their counts.
    if (std::isfinite(difference)) distance.squares += difference * difference;
  }
  return distance;
}

/// @return a lower bound of the norm of a - b: the largest difference of two extrema, or of the
/// sums of absolute values, divided by the root of the element count. NaN: unknown.
double least_distance(const Stats& a, const Stats& b) {
  double least = 0;
  for (const format::Scalar Stats::*const number : {&Stats::min, &Stats::max, &Stats::amax})
    least = std::fmax(least, std::abs((a.*number).as_f64() - (b.*number).as_f64()));
  const double terms = std::sqrt(static_cast<double>(std::max<uint64_t>(a.count, 1)));
  return std::fmax(least, std::abs(a.l1.as_f64() - b.l1.as_f64()) / terms);
}

/// Sets `apart.exact`, too.
double estimated_distance(const ValueView& base, const ValueView& cand, Apart& apart) {
  const Sketch& a = base.record.stats.sketch;
  const Sketch& b = cand.record.stats.sketch;
  if (a.is_known() && b.is_known()) return sketched_distance(a, b);
  const SampleDistance samples = sample_distance(base, cand);
  if (samples.count >= std::max<uint64_t>(base.record.stats.count, 1)) {
    apart.exact = !base.record.in_pieces && !cand.record.in_pieces;
    return std::sqrt(samples.squares);
  }
  const double known = std::max({apart.norm * apart.size, apart.mean * apart.size,
                                 least_distance(base.record.stats, cand.record.stats)});
  if (samples.count == 0) return known;
  const double share =
      static_cast<double>(base.record.stats.count) / static_cast<double>(samples.count);
  return std::max(known, std::sqrt(samples.squares * share));
}

bool same_non_finite(const Stats& a, const Stats& b) {
  return a.nan == b.nan && a.pos_inf == b.pos_inf && a.neg_inf == b.neg_inf;
}

bool all_finite(const Stats& s) { return s.nan + s.pos_inf + s.neg_inf == 0; }

Comparison compare_non_finite(const Stats& base, const Stats& cand) {
  const bool born = all_finite(base) || all_finite(cand);
  const auto distance = [](uint64_t a, uint64_t b) {
    return static_cast<double>(a > b ? a - b : b - a);
  };
  Comparison comparison = decided(born ? Class::kNanBorn : Class::kDiverged, Field::kNonFinite);
  comparison.difference = distance(base.nan, cand.nan) + distance(base.pos_inf, cand.pos_inf) +
                          distance(base.neg_inf, cand.neg_inf);
  comparison.tolerance = 0;
  return comparison;
}

bool same_shape(const ValueView& base, const ValueView& cand) {
  if (base.record.stats.count != cand.record.stats.count) return false;
  return !base.record.has_shape || !cand.record.has_shape ||
         std::ranges::equal(base.shape, cand.shape);
}

/// @return whether two values have the same numbers, whatever their types and shapes.
bool same_numbers(const ValueRecord& a, const ValueRecord& b) {
  const auto numbers = [](const ValueRecord& r) {
    return std::array{tools::extreme_as_double(r.dtype, r.stats.min),
                      tools::extreme_as_double(r.dtype, r.stats.max),
                      tools::wide_as_double(r.dtype, r.stats.sum),
                      tools::wide_as_double(r.dtype, r.stats.l1), r.stats.l2};
  };
  if (a.stats.count != b.stats.count) return false;
  if (a.dtype == b.dtype && a.stats.hash == b.stats.hash) return true;
  return has_statistics(a) && has_statistics(b) && numbers(a) == numbers(b);
}

/// @return whether all statistics agree that do not depend on the order of addition, or are exact
/// for integers.
bool exact_alike(const Stats& a, const Stats& b) {
  const auto exact = [](const Stats& s) {
    return std::tuple(s.count, s.finite, s.nan, s.pos_inf, s.neg_inf, s.pos_zero, s.neg_zero,
                      s.positive, s.negative, s.subnormal, s.saturated, s.min.bits, s.max.bits,
                      s.amax.bits, s.amin_nonzero.bits, s.sum.lo, s.sum.hi, s.l1.lo, s.l1.hi);
  };
  return exact(a) == exact(b);
}

/// @return whether all recorded facts of two values but their hashes agree.
bool recorded_alike(const ValueView& base, const ValueView& cand) {
  if (!has_statistics(base.record) || !has_statistics(cand.record)) return false;
  if (base.record.in_pieces || cand.record.in_pieces)
    return exact_alike(base.record.stats, cand.record.stats);
  return alike_but_for_hashes(base.record.stats, cand.record.stats) &&
         std::ranges::equal(base.samples, cand.samples);
}

/// The comparison of values with different types or shapes; an input may mean the same
/// nevertheless.
Comparison mismatch(const ValueView& base, const ValueView& cand, Field field) {
  const bool is_input = base.record.kind == Role::kInput;
  if (is_input && same_numbers(base.record, cand.record)) return decided(Class::kOtherForm, field);
  return decided(Class::kShapeOrDtypeMismatch, field);
}

}  // namespace

bool alike_but_for_hashes(const Stats& base, Stats cand) {
  cand.hash = base.hash;
  return base == cand;
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

bool is_known_by_averages(const ValueView& base, const ValueView& cand) {
  const Stats &a = base.record.stats, &b = cand.record.stats;
  return !(a.sketch.is_known() && b.sketch.is_known()) && std::max(a.count, b.count) > 1 &&
         (base.samples.empty() || cand.samples.empty());
}

double sketch_floor(const ValueView& base, const ValueView& cand) {
  const bool is_finer = unit_roundoff(base.record.dtype) < unit_roundoff(DType::kF32);
  const bool sketched = base.record.stats.sketch.is_known() && cand.record.stats.sketch.is_known();
  return is_finer && sketched ? kSketchFloor : 0;
}

Apart measure(const ValueView& base, const ValueView& cand) {
  const Stats& a = base.record.stats;
  const Stats& b = cand.record.stats;
  if (a.hash == b.hash && base.record.dtype == cand.record.dtype) return {};
  Apart apart;
  apart.size = std::fmax(a.l2, b.l2);  // NaN: not known
  apart.count = std::min(a.finite, b.finite);
  const double norm = std::abs(a.l2 - b.l2);
  apart.norm = std::isnan(norm) ? 0 : ratio(norm, apart.size);
  const double mean = std::abs(a.mean - b.mean);
  apart.mean = std::isfinite(mean) ? ratio(mean, rms_of(apart.size, apart.count)) : 0;
  apart.floor = sketch_floor(base, cand);
  apart.rms = ratio(estimated_distance(base, cand, apart), apart.size);
  // An estimate from sketches may miss by half. The norms and means are of all elements.
  const double least = std::max(apart.norm, apart.mean), most = ratio(a.l2 + b.l2, apart.size);
  if (apart.rms < least) apart.rms = least;
  if (apart.rms > most) apart.rms = most;
  return apart;
}

Comparison compare(const ValueView& base, const ValueView& cand) {
  const ValueRecord& a = base.record;
  const ValueRecord& b = cand.record;
  const bool padded = a.extent == format::Extent::kBlock || b.extent == format::Extent::kBlock;
  if (a.dtype != b.dtype) return mismatch(base, cand, Field::kDType);
  if (!padded && !same_shape(base, cand)) return mismatch(base, cand, Field::kShape);
  const bool one_version = a.hashed_anew == b.hashed_anew;
  if (one_version && a.stats.hash == b.stats.hash) return {};
  if (a.unwritten || b.unwritten) return kUnwritten;
  const NumberClass number = format::number_class(a.dtype);
  const bool opaque = padded || number == NumberClass::kBytes;
  const bool hash_only = !has_statistics(a) || !has_statistics(b);
  const bool hashed_alike = one_version && !a.in_pieces && !b.in_pieces;
  if (!hashed_alike) {
    if (recorded_alike(base, cand)) return {.verdict = Class::kWithinNoise, .bits_known = false};
    if (opaque || hash_only) return kUnknown;
  }
  if (opaque) return decided(Class::kBitDifference, Field::kHash);
  if (number != NumberClass::kFloat) return decided(Class::kDiverged, Field::kHash);
  if (hash_only) return decided(Class::kBitDifference, Field::kHash);
  if (!same_non_finite(a.stats, b.stats)) return compare_non_finite(a.stats, b.stats);
  Comparison open = decided(Class::kSuspicious, Field::kRms);
  open.bits_known = hashed_alike;
  return open;
}

}  // namespace convtrace::diff

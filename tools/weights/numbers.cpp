#include "tools/weights/numbers.h"

#include <algorithm>
#include <cmath>

#include "tools/common/text.h"
#include "tools/trace/model/distance.h"

namespace convtrace::weights {
namespace {

using format::NumberClass;
using format::Stats;

/// Sums are computed in another order where a tensor is in pieces: the error of a sum of f32 within
/// 64 bytes, and of f64 beyond (docs/recording.md "Statistics").
constexpr double kSumError = 1e-6;
/// The norm of 16 buckets is within a factor of 2 of the norm that it estimates.
constexpr double kSketchError = 2;

bool within(double a, double b, double limit) {
  return a == b || std::abs(a - b) <= limit || (std::isnan(a) && std::isnan(b));
}

bool equal_counts(const Stats& a, const Stats& b) {
  return a.count == b.count && a.finite == b.finite && a.nan == b.nan && a.pos_inf == b.pos_inf &&
         a.neg_inf == b.neg_inf && a.positive == b.positive && a.negative == b.negative;
}

/// @param relative  by which every element may differ.
bool equal_numbers(const Stats& a, const Stats& b, double relative) {
  const double each = relative + kSumError;
  return within(a.min.as_f64(), b.min.as_f64(), relative * std::abs(a.min.as_f64())) &&
         within(a.max.as_f64(), b.max.as_f64(), relative * std::abs(a.max.as_f64())) &&
         within(a.sum.as_f64(), b.sum.as_f64(), each * a.l1.as_f64()) &&
         within(a.l1.as_f64(), b.l1.as_f64(), each * a.l1.as_f64()) &&
         within(a.l2, b.l2, each * a.l2);
}

bool is_float(const Whole& whole) {
  return format::number_class(whole.dtype) == NumberClass::kFloat;
}

/// @return whether one is the other, rounded to a narrower type.
bool is_cast(const Whole& a, const Whole& b) {
  const double unit = std::max(diff::unit_roundoff(a.dtype), diff::unit_roundoff(b.dtype));
  // The counts of zeros and infinities are not compared, since rounding changes them.
  if (a.stats.count != b.stats.count || !equal_numbers(a.stats, b.stats, unit)) return false;
  const auto apart = distance(a, b);
  return !apart || *apart <= kSketchError * unit;
}

}  // namespace

std::optional<double> distance(const Whole& a, const Whole& b) {
  if (!a.exact || !b.exact || !a.measured || !b.measured || a.stats.count != b.stats.count)
    return std::nullopt;
  const format::Sketch &x = a.stats.sketch, &y = b.stats.sketch;
  if (!x.is_known() || !y.is_known() || !(a.stats.l2 > 0)) return std::nullopt;
  return diff::sketched_distance(x, y) / a.stats.l2;
}

std::string difference_text(const Whole& a, const Whole& b, std::optional<double> distance) {
  if (!a.measured || !b.measured) return " in its hash; nothing else was recorded";
  const std::string text =
      distance && *distance > 0 ? " by " + tools::percent_text(*distance) + " of its size" : "";
  if (!is_float(a) || !is_float(b))
    return text.empty()
               ? " in its bits; numbers of " + std::string(to_string(a.dtype)) + " are not compared"
               : text;
  struct Number {
    std::string_view name;
    double a, b;
  };
  const auto count = [](uint64_t number) { return static_cast<double>(number); };
  const Stats &x = a.stats, &y = b.stats;
  const Number numbers[] = {{"NaN", count(x.nan), count(y.nan)},
                            {"inf", count(x.pos_inf), count(y.pos_inf)},
                            {"-inf", count(x.neg_inf), count(y.neg_inf)},
                            {"l2", x.l2, y.l2},
                            {"l1", x.l1.as_f64(), y.l1.as_f64()},
                            {"min", x.min.as_f64(), y.min.as_f64()},
                            {"max", x.max.as_f64(), y.max.as_f64()},
                            {"sum", x.sum.as_f64(), y.sum.as_f64()},
                            {"positive", count(x.positive), count(y.positive)},
                            {"negative", count(x.negative), count(y.negative)}};
  constexpr int kDigits[] = {6, 9, 17};
  for (const int digits : kDigits) {
    for (const Number& one : numbers) {
      if (std::isnan(one.a) || std::isnan(one.b)) continue;
      const std::string in_a = tools::number_text(one.a, digits);
      const std::string in_b = tools::number_text(one.b, digits);
      if (in_a != in_b)
        return text + ": " + std::string(one.name) + ' ' + in_a + " in A, " + in_b + " in B";
    }
  }
  return text.empty() ? " in its bits alone: all numbers that were recorded of it are equal" : text;
}

Alike alike(const Whole& a, const Whole& b, bool hashes) {
  if (!a.known || !b.known) return Alike::kNotKnown;
  const bool same_type = a.dtype == b.dtype;
  if (same_type && a.exact && b.exact && hashes && a.stats.hash == b.stats.hash &&
      a.stats.count == b.stats.count)
    return Alike::kBits;
  if (a.stats.count != b.stats.count) return Alike::kUnlike;
  const bool bits_differ = same_type && a.exact && b.exact && hashes;
  if (!a.measured || !b.measured || !is_float(a) || !is_float(b))
    return bits_differ ? Alike::kUnlike : Alike::kNotKnown;
  if (!same_type) return is_cast(a, b) ? Alike::kCast : Alike::kUnlike;
  if (!equal_counts(a.stats, b.stats) || !equal_numbers(a.stats, b.stats, 0)) return Alike::kUnlike;
  if (!bits_differ) return Alike::kNumbers;
  const auto apart = distance(a, b);
  return apart && *apart < kSumError ? Alike::kUnlike : Alike::kReordered;
}

}  // namespace convtrace::weights

#include "tools/weights/weights.h"

#include <algorithm>
#include <cmath>

namespace convtrace::weights {
namespace {

using format::NumberClass;
using format::Stats;

/// Adds the statistics of a piece. Hashes and sketches belong to one tensor and do not add up.
void add(Stats& sum, const Stats& one) {
  sum.count += one.count;
  for (uint64_t Stats::*const count :
       {&Stats::finite, &Stats::nan, &Stats::pos_inf, &Stats::neg_inf, &Stats::pos_zero,
        &Stats::neg_zero, &Stats::positive, &Stats::negative, &Stats::subnormal, &Stats::saturated})
    sum.*count += one.*count;
  const auto number = [](format::Scalar a, format::Scalar b, bool larger) {
    const double x = a.as_f64(), y = b.as_f64();  // NaN: no finite value
    return format::Scalar::f64(larger ? std::fmax(x, y) : std::fmin(x, y));
  };
  sum.min = number(sum.min, one.min, false);
  sum.max = number(sum.max, one.max, true);
  sum.amax = number(sum.amax, one.amax, true);
  sum.amin_nonzero = number(sum.amin_nonzero, one.amin_nonzero, false);
  sum.sum = format::WideScalar::f64(sum.sum.as_f64() + one.sum.as_f64());
  sum.l1 = format::WideScalar::f64(sum.l1.as_f64() + one.l1.as_f64());
  sum.l2 = std::hypot(sum.l2, one.l2);
  sum.hash = 0;
  sum.sketch = {};
}

Whole one_of(const Value& value) {
  return {.known = true,
          .exact = true,
          .piece_count = value.stats.count,
          .dtype = value.dtype,
          .measured = value.capture != format::Capture::kHash,
          .stats = value.stats};
}

}  // namespace

Whole fused(const std::vector<Whole>& parts) {
  if (parts.empty()) return {};
  Whole whole = parts.front();
  for (size_t i = 1; i < parts.size(); ++i) {
    const Whole& part = parts[i];
    const bool floats = format::number_class(part.dtype) == NumberClass::kFloat;
    whole.known = whole.known && part.known && part.dtype == whole.dtype && floats &&
                  whole.measured && part.measured;
    whole.exact = false;
    whole.pieces += part.pieces;
    if (part.piece_count != whole.piece_count) whole.piece_count = 0;
    if (whole.known) add(whole.stats, part.stats);
  }
  return whole;
}

Whole joined(const std::vector<Value>& values) {
  std::vector<Whole> unlike;
  for (const Value& value : values) {
    const bool is_copy = std::ranges::any_of(unlike, [&value](const Whole& other) {
      return other.stats.hash == value.stats.hash && other.stats.count == value.stats.count &&
             other.dtype == value.dtype;
    });
    if (!is_copy) unlike.push_back(one_of(value));
  }
  return fused(unlike);
}

}  // namespace convtrace::weights

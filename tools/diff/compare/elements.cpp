#include "tools/diff/compare/elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tools/common/element.h"

namespace convtrace::diff {
namespace {

/// @return the sign bit of a float; 0 for a type without one.
uint64_t sign_of(format::DType dtype) {
  if (dtype == format::DType::kF4E2M1FN) return 8;
  if (dtype == format::DType::kF8E8M0FNU) return 0;
  return uint64_t{1} << (8 * tools::component_bytes(dtype) - 1);
}

/// Numbers the floats in order of value, so that neighbours differ by one.
int64_t ordinal(const std::byte* bits, size_t width, uint64_t sign) {
  uint64_t word = 0;
  std::memcpy(&word, bits, width);
  if (sign == 0) return static_cast<int64_t>(word);
  const auto magnitude = static_cast<int64_t>(word & (sign - 1));
  return (word & sign) != 0 ? -magnitude : magnitude;
}

uint64_t ulps_between(const std::byte* a, const std::byte* b, size_t width, uint64_t sign) {
  const int64_t x = ordinal(a, width, sign), y = ordinal(b, width, sign);
  return static_cast<uint64_t>(std::max(x, y)) - static_cast<uint64_t>(std::min(x, y));
}

void count(double value, std::array<uint64_t, Histogram::kBins>& bins, const Histogram& limits) {
  if (!std::isfinite(value)) return;
  // Halves, since the difference of two finite numbers may be infinite.
  const double share = (value / 2 - limits.low / 2) / (limits.high / 2 - limits.low / 2);
  ++bins[static_cast<size_t>(std::clamp(share, 0.0, 1.0) * (Histogram::kBins - 1e-6))];
}

}  // namespace

ElementComparer::ElementComparer(format::DType dtype, double size)
    : dtype_(dtype), width_(tools::component_bytes(dtype)), size_(size) {
  report_.has_ulps = format::number_class(dtype) == format::NumberClass::kFloat;
}

void ElementComparer::count_between(double low, double high) {
  report_.histogram = Histogram{.low = low, .high = high};
}

void ElementComparer::add(std::span<const std::byte> base, std::span<const std::byte> cand) {
  const size_t bytes = std::min(base.size(), cand.size());
  for (size_t at = 0; at + width_ <= bytes; at += width_) {
    const std::byte* a = base.data() + at;
    const std::byte* b = cand.data() + at;
    add(tools::decode_component(dtype_, a), tools::decode_component(dtype_, b), a, b);
  }
}

void ElementComparer::add(double a, double b, const std::byte* a_bits, const std::byte* b_bits) {
  ElementReport& r = report_;
  if (r.histogram) {
    count(a, r.histogram->base, *r.histogram);
    count(b, r.histogram->cand, *r.histogram);
  }
  const uint64_t index = r.compared++;
  const bool equal = a == b || (std::isnan(a) && std::isnan(b));
  const bool numbers = std::isfinite(a) && std::isfinite(b);
  if (!equal) {
    ++r.differing;
    if (!r.first) {
      r.first = index;
      r.first_base = a;
      r.first_cand = b;
    }
    if (!numbers) ++r.not_numbers;
  }
  double relative = 0;
  if (numbers) {
    const double difference = std::abs(a - b);
    const double larger = std::max(std::abs(a), std::abs(b));
    relative = equal ? 0 : difference / larger;
    if (!equal) r.max_scaled = std::max(r.max_scaled, difference / std::max(larger, size_));
    squares_ += difference * difference;
    r.max_abs = std::max(r.max_abs, difference);
    r.max_rel = std::max(r.max_rel, relative);
    dot_ += a * b;
    base_norm_ += a * a;
    cand_norm_ += b * b;
    if (r.has_ulps) {
      const uint64_t distance = ulps_between(a_bits, b_bits, width_, sign_of(dtype_));
      ++r.ulps[static_cast<size_t>(std::ranges::lower_bound(kUlpLimits, distance) -
                                   kUlpLimits.begin())];
    }
  }
  if (!numbers && !equal) return;
  for (size_t i = 0; i < kWithin.size(); ++i) r.within[i] += relative <= kWithin[i] ? 1 : 0;
}

ElementReport ElementComparer::report() const {
  ElementReport report = report_;
  report.distance = std::sqrt(squares_);
  const double norms = std::sqrt(base_norm_) * std::sqrt(cand_norm_);
  if (norms > 0) {
    report.cosine = std::clamp(dot_ / norms, -1.0, 1.0);
  } else if (base_norm_ != cand_norm_) {
    report.cosine = 0;  // one of the two is zero
  }
  return report;
}

}  // namespace convtrace::diff

#include "format/values/plane_choice.h"

#include <cmath>

#include "format/values/planes.h"

namespace convtrace::format {
namespace {

constexpr double kIncompressibleBits = 7.7;
constexpr double kSparseBits = 1.5;

PlaneCoding coding_for(double bits) {
  if (bits > kIncompressibleBits) return PlaneCoding::kRaw;
  return bits < kSparseBits ? PlaneCoding::kZstd : PlaneCoding::kHuffman;
}

}  // namespace

PlaneChooser::PlaneChooser() {
  for (size_t n = 1; n < count_log_count_.size(); ++n) {
    const auto count = static_cast<float>(n);
    count_log_count_[n] = count * std::log2(count);
  }
}

double PlaneChooser::bits_of_plane(uint32_t plane, size_t sampled) const noexcept {
  double sum = 0;
  size_t used = 0;
  for (const uint16_t count : histograms_[plane]) {
    sum += static_cast<double>(count_log_count_[count]);
    used += count != 0 ? 1 : 0;
  }
  const auto total = static_cast<double>(sampled);
  // The entropy of a small sample is biased downwards (Miller and Madow, 1955).
  const double bias = static_cast<double>(used - 1) / (2 * total) * std::log2(std::exp(1.0));
  return std::log2(total) - sum / total + bias;
}

PlaneChoice PlaneChooser::choose(Bytes raw, Bytes base, ElementForm form) noexcept {
  const size_t width = form.width;
  const size_t elements = raw.size() / width;
  const size_t run = elements < kSampled ? elements : kRunElements;
  const size_t runs = elements < kSampled ? 1 : kRuns;
  for (size_t p = 0; p < width; ++p) histograms_[p].fill(0);
  for (size_t r = 0; r < runs; ++r) {
    const size_t first = runs == 1 ? 0 : r * (elements - run) / (runs - 1);
    const auto part = [&](Bytes bytes) {
      return bytes.empty() ? bytes : bytes.subspan(first * width, run * width);
    };
    split_planes(part(raw), part(base), form, std::span(planes_).first(run * width));
    for (size_t p = 0; p < width; ++p) {
      for (size_t i = 0; i < run; ++i) ++histograms_[p][static_cast<uint8_t>(planes_[p * run + i])];
    }
  }
  PlaneChoice choice;
  for (uint32_t p = 0; p < width; ++p) {
    const double bits = bits_of_plane(p, run * runs);
    choice.coding[p] = coding_for(bits);
    choice.bits += choice.coding[p] == PlaneCoding::kRaw ? 8 : bits;
    choice.all_raw = choice.all_raw && choice.coding[p] == PlaneCoding::kRaw;
  }
  return choice;
}

}  // namespace convtrace::format

#pragma once
/// @file elements.h
/// Compares two stored values element by element.
///
/// Place:    snapshot_pairs.h, for values that statistics call rounding, and for values in the
///           report.
/// Threads:  one owner thread.
/// Source:   the usual measures of tensor comparison: largest errors, cosine, units in the last
///           place, share of elements within a relative error, first differing element.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "format/model/dtype.h"

namespace convtrace::diff {

/// Relative errors are |a - b| / max(|a|, |b|), so they do not change when the runs are exchanged.
inline constexpr std::array<double, 3> kWithin = {1e-2, 1e-3, 1e-4};
/// Buckets of units in the last place: 0, 1, 2 to 3, 4 to 15, 16 to 255, 256 to 65535, more.
inline constexpr std::array<uint64_t, 6> kUlpLimits = {0, 1, 3, 15, 255, 65535};

/// The distribution of both runs' finite values, between the smallest and the largest of them.
struct Histogram {
  static constexpr size_t kBins = 40;  ///< as many bars as a phone shows
  double low = 0, high = 0;            ///< limits of the first and the last bin
  std::array<uint64_t, kBins> base{}, cand{};
};

struct ElementReport {
  uint64_t count = 0;        ///< components: values; a complex element has two
  uint64_t compared = 0;     ///< less than count if the values are too large to be read whole
  uint64_t differing = 0;    ///< NaN is equal to NaN, -0 to 0
  uint64_t not_numbers = 0;  ///< NaN or infinite in one run only, or in both but unequal
  double max_abs = 0, max_rel = 0;
  double distance = 0;  ///< norm of the differences of finite elements
  /// Largest |a - b| / max(|a|, |b|, the root mean square of the value).
  double max_scaled = 0;
  double cosine = 1;                 ///< over the elements that are finite in both
  std::array<uint64_t, 3> within{};  ///< by kWithin
  bool has_ulps = false;             ///< the type is a floating-point type
  std::array<uint64_t, 7> ulps{};    ///< counts of finite elements, by kUlpLimits
  std::optional<uint64_t> first;     ///< first component that differs, in row-major order
  double first_base = 0, first_cand = 0;
  std::optional<Histogram> histogram;  ///< if a range was given
};

class ElementComparer {
 public:
  /// @param size  root mean square of the value: the scale for smaller elements.
  explicit ElementComparer(format::DType dtype, double size = 0);
  /// Counts the values for a histogram, too. @pre low < high, both finite; nothing was added.
  void count_between(double low, double high);
  /// Compares whole components of the next pieces of both values, which are equally long, as
  /// samples have them.
  void add(std::span<const std::byte> base, std::span<const std::byte> cand);
  [[nodiscard]] ElementReport report() const;

 private:
  void add(double a, double b, const std::byte* a_bits, const std::byte* b_bits);

  format::DType dtype_;
  size_t width_;
  double size_;
  double squares_ = 0, dot_ = 0, base_norm_ = 0, cand_norm_ = 0;
  ElementReport report_;
};

}  // namespace convtrace::diff

#pragma once
/// @file plane_choice.h
/// Chooses the coding of each byte plane of a part from a sample of its elements.
///
/// Threads:  one owner thread an object.
/// Source:   measured on weights, activations and gradients: above 7.7 bits a byte compression
///           gains less than it costs; below 1.5 bits a Huffman code, which spends at least one bit
///           a byte, is beaten by zstd level 1; in between a search for repeats finds none and
///           takes three times as long.

#include <array>

#include "format/values/blob.h"

namespace convtrace::format {

enum class PlaneCoding : uint8_t { kRaw, kHuffman, kZstd };

/// The result of a sample for one form.
struct PlaneChoice {
  std::array<PlaneCoding, kMaxPlanes> coding{};
  double bits = 0;      ///< estimated stored bits of an element
  bool all_raw = true;  ///< no plane gains by compression
};

class PlaneChooser {
 public:
  PlaneChooser();

  /// @param base  as for split_planes.
  [[nodiscard]] PlaneChoice choose(Bytes raw, Bytes base, ElementForm form) noexcept;

 private:
  static constexpr size_t kRunElements = 64;
  static constexpr size_t kRuns = 16;
  static constexpr size_t kSampled = kRunElements * kRuns;

  [[nodiscard]] double bits_of_plane(uint32_t plane, size_t sampled) const noexcept;

  std::array<float, kSampled + 1> count_log_count_{};  ///< n * log2(n)
  std::array<std::array<uint16_t, 256>, kMaxPlanes> histograms_{};
  std::array<std::byte, kSampled * kMaxPlanes> planes_{};
};

}  // namespace convtrace::format

#pragma once
/// @file gradient_sources.h
/// What the gradients of a module's parameters are made of in one step, as far as it is recorded,
/// and what the records of two steps prove about it.
///
/// Place:    stale_gradient.cpp judges by it.
/// Threads:  plain values. They outlive the step that they are made of.
/// Source:   docs/recording.md "Statistics": of a tensor are known its hash, its statistics, and
///           the bits of all of up to 16 elements, else of eight at even distances.

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "tools/check/model/step_values.h"

namespace convtrace::check {

/// A value that outlives its step.
struct Source {
  Value value{};
  std::vector<std::byte> samples{};
  std::vector<uint64_t> extents{};
};

/// Of the calls of one module that a backward pass reached, whatever their numbers: calls before
/// them that nothing was learned from (a look at a shape, an evaluation) have no gradient.
struct GradientSources {
  std::vector<Source> gradients{};  ///< of outputs; those of zeros add nothing and are left out
  std::vector<Source> inputs{};     ///< floats that these calls took
  /// Whether the statistics of all of them are known, and all numbers are finite.
  bool known = true;

  /// Whether the inputs are zeros alone, so that nothing is multiplied by the gradients.
  [[nodiscard]] bool takes_zeros() const;
};

/// Values with statistics by their hashes: of most inputs a hash alone is recorded, since they are
/// what another module gave.
using MeasuredValues = std::unordered_map<uint64_t, const Value*>;
[[nodiscard]] MeasuredValues measured_values(const StepValues& step);

[[nodiscard]] GradientSources sources_of(const StepValues& step, const MeasuredValues& measured,
                                         format::StringId module);

/// Whether all that is recorded says that every element is another, and that elements have sizes of
/// their own: no two values have one hash; no known element that is not zero has the bits that one
/// at its place had before; of each value three such elements are known, and no two have one size.
/// So losses are excluded whose gradient is a few numbers, of which most come again (L1, hinge, the
/// multi-class margin, the linear part of SmoothL1). False where steps have more than 100 calls.
[[nodiscard]] bool all_changed(std::span<const Source> now, std::span<const Source> before);

/// @return how far the nearest two values of two steps are apart, relative to their size; 1 where
/// all are of other sizes.
[[nodiscard]] double nearest_distance(std::span<const Source> now, std::span<const Source> before);

/// @return half the step between the numbers that a value may hold, relative to its elements: by the
/// most significant bits that a known element has, or by the finest step of any on the scale of the
/// root mean square, whichever is coarser. In values that were rounded to fewer bits than those of
/// their type it is the roundoff of the rounding; in full ones it is that of the type, as far as
/// one of the known elements has an odd last bit.
[[nodiscard]] double roundoff(const Value& value, std::span<const std::byte> samples);

/// @return the element's bits, 0 where there is none.
[[nodiscard]] uint64_t element_bits(std::span<const std::byte> samples, format::DType dtype,
                                    size_t i);
/// @return the same without the sign.
[[nodiscard]] uint64_t magnitude_bits(std::span<const std::byte> samples, format::DType dtype,
                                      size_t i);
/// @return the logical index of sample `i`.
[[nodiscard]] uint64_t sample_position(uint64_t count, size_t i);
/// Whether elements of a type can be told apart by their bits: f64, f32, f16, bf16.
[[nodiscard]] bool is_plain_float(format::DType dtype);

/// The dimension of a layer's inputs, or of its outputs, that its weight mixes or makes: the last
/// one of a linear layer, the second of a convolution, the first without a batch.
/// @return its extent and the product of those behind it; 0 if there is none.
struct Channels {
  uint64_t count = 0, inner = 1;
  [[nodiscard]] uint64_t of(uint64_t position) const { return position / inner % count; }
};
[[nodiscard]] Channels channels_of(std::span<const uint64_t> extents, size_t weight_rank);

}  // namespace convtrace::check

#pragma once
/// @file gradient_sources.h
/// The recorded sources of the gradients of a module's parameters in one step, and the proofs that
/// the records of two steps allow.
///
/// Place:    stale_gradient.cpp judges by it.
/// Threads:  plain values. They outlive the step that they are made of.
/// Source:   docs/recording.md "Statistics": a tensor's record has its hash, its statistics, and
/// the bits of all of up to 16 elements, else of eight at even distances.

#include <cstddef>
#include <cstdint>
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

/// The values of those calls of a module that a backward pass reached. Other calls (to find a
/// shape, an evaluation) have no gradient and are left out.
struct GradientSources {
  std::vector<Source> gradients{};  ///< gradients of outputs, without those that are all 0
  std::vector<Source> inputs{};     ///< floats that these calls took
  /// All statistics are known, and all numbers are finite.
  bool known = true;

  /// @return whether all inputs are zeros, so that the gradients have no effect.
  [[nodiscard]] bool takes_zeros() const;
};

/// Values with statistics, by their hashes: most inputs are recorded as a hash alone, since they
/// are another module's output.
using MeasuredValues = std::unordered_map<uint64_t, const Value*>;
[[nodiscard]] MeasuredValues measured_values(const StepValues& step);

[[nodiscard]] GradientSources sources_of(const StepValues& step, const MeasuredValues& measured,
                                         format::StringId module);

/// @return whether all records show that every element changed, and that elements have distinct
/// magnitudes: no two values have equal hashes; no known nonzero element has the bits of an earlier
/// one at its place; three such elements of each value are known, and no two have one magnitude.
/// This excludes losses whose gradient consists of a few numbers, most of which repeat (L1, hinge,
/// the multi-class margin, the linear part of SmoothL1). False if a step has more than 100 calls.
[[nodiscard]] bool all_changed(std::span<const Source> now, std::span<const Source> before);

/// @return the distance of the nearest two values of two steps, relative to their size; 1 if no two
/// have the same count of elements.
[[nodiscard]] double nearest_distance(std::span<const Source> now, std::span<const Source> before);

/// @return half the step between the numbers that a value may hold, relative to its elements: by
/// the most significant bits that a known element has, or by the finest step of any on the scale of
/// the root mean square, whichever is coarser. In values that were rounded to fewer bits than those
/// of their type it is the roundoff of the rounding; in full ones it is that of the type, as far as
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
/// @return whether the type is f64, f32, f16 or bf16, whose elements are compared by their bits.
[[nodiscard]] bool is_plain_float(format::DType dtype);

/// The dimension of a layer's inputs, or of its outputs, that its weight mixes or makes: the last
/// one of a linear layer, the second of a convolution, the first without a batch.
/// @return its extent and the product of the later ones; 0 if there is none.
struct Channels {
  uint64_t count = 0, inner = 1;
  [[nodiscard]] uint64_t of(uint64_t position) const { return position / inner % count; }
};
[[nodiscard]] Channels channels_of(std::span<const uint64_t> extents, size_t weight_rank);

}  // namespace convtrace::check

#pragma once
/// @file births.h
/// Tells a difference that is a fault from one that is rounding, by where it was born.
///
/// A difference is passed on when it is no larger than that of what the value was made of
/// (sources.h), times what a layer may make of it; else it is born here. A birth is rounding while
/// it stays near the unit roundoff of the coarsest type involved. The limits are measured:
/// docs/calibration.md says on what, and what stays out of sight.
///
/// Place:    rank_diff.h, one step after another, match by match in execution order.
/// Threads:  not thread-safe.

#include <functional>
#include <limits>
#include <optional>
#include <span>

#include "tools/diff/births/sources.h"
#include "tools/diff/births/updates.h"
#include "tools/diff/compare/elements.h"
#include "tools/diff/compare/noise.h"

namespace convtrace::diff {

/// Born rounding in units of the roundoff. Sums that are wider than the type round once more at
/// their end (measured: 3.6); others as often as they have terms (4.3 to 39).
inline constexpr double kWideSumLimit = 8, kOwnSumLimit = 256;
/// How much of the sources' difference the norm may show: of many elements it averages. Measured:
/// 0.48, truncation 1.13.
inline constexpr double kNormGain = 1.5;
/// How much of the limit of born rounding. A scale that is rounded itself, as the divisor of a
/// spectral norm, is the same for all elements: 3.9 units of the roundoff.
inline constexpr double kNormShare = 5.0 / 8;
inline constexpr uint64_t kLeastForNorm = 256;
/// The mean of an output in 16 bits that is made of equal values, in standard errors of rounding.
/// Measured: 4.8. Rounding errors of values that lie close together are alike, so of many elements
/// the mean is off by a share of the roundoff: 0.04.
inline constexpr double kMeanLimit = 10, kMeanShare = 0.1;
/// How far a stored element of a value that is made of equal values may be apart, beside the root
/// mean square of all. Measured: 1.2.
inline constexpr double kElementGain = 4;
/// A gradient of a parameter is a sum, held against the norm of its terms. Measured: 19. In f32 it
/// may be added up one by one over all rows: 270.
inline constexpr double kGradientLimit = 32, kOwnGradientLimit = 1024;
/// A function with a kink (ReLU, a maximum) passes a gradient on or not by the sign of a value: of
/// values that differ by d (relative) a share of d / pi has another sign, so gradients differ by
/// 0.8 sqrt(d). Measured: 1.8, over several such layers. In a small tensor it is one element that
/// has another sign or none: 1.44 of the root of its share.
inline constexpr double kKinkGain = 5;
/// So many elements with another sign are expected at least once in as many gradients as a run has.
inline constexpr double kRareFlips = 1e-3;
/// A loss averages over rows. Measured: 5.1.
inline constexpr double kLossLimit = 16;
/// What repetitions of the baseline differ by, times this, is noise: an estimate by sketches may be
/// half as large as another.
inline constexpr double kNoiseGain = 3;

/// What may differ at all.
enum class Exactness : uint8_t {
  kExact,   ///< nothing: both runs do the same, and repeat to the bit
  kInexact  ///< rounding
};

/// Compares the bytes of two values, where both traces hold them (snapshot_pairs.h).
using CompareStored =
    std::function<std::optional<ElementReport>(const ValueRecord& base, const ValueRecord& cand)>;

class Births {
 public:
  Births(format::Definitions& names, Exactness exactness)
      : exactness_(exactness), sources_(names) {}

  void begin_step(const Lineage& lineage, size_t matches) {
    sources_.begin_step(lineage, matches);
    updates_.begin_step();
  }

  /// Decides what compare() left open.
  /// @param noise    null: there are no repetitions.
  /// @param allowed  what the user allows in place of all limits.
  void judge(uint32_t match, const ValueView& base, const ValueView& cand, const NoiseBand* noise,
             std::optional<double> allowed, Comparison& comparison);

  /// Updates of parameters are told from rounding only together. To be called behind the last match
  /// of the step. @return how the updates differ, if that is a fault
  [[nodiscard]] std::optional<Comparison> judge_updates();

  void take_equal_step() { sources_.take_equal_step(); }
  /// Further values that both traces hold are compared element by element.
  void use_stored(CompareStored stored) { stored_ = std::move(stored); }
  /// Further products of f32 are rounded to the 10 bits of TF32.
  void use_tf32() { tf32_ = true; }

 private:
  struct Limits {
    static constexpr double kNone = std::numeric_limits<double>::infinity();
    double rms = kNone, norm = kNone, mean = kNone, element = kNone;
  };

  [[nodiscard]] Apart measure_pair(const ValueView& base, const ValueView& cand) const;
  [[nodiscard]] double unit_of(const ValueRecord& record) const;
  [[nodiscard]] Limits limits_of(const ValueView& base, const ValueView& cand, const Apart& apart,
                                 const Difference& source) const;
  void weigh(const Apart& apart, const Limits& limits, const Difference& source,
             Comparison& comparison) const;
  [[nodiscard]] double kink_limit(const Apart& apart) const;
  [[nodiscard]] static Limits loss_limits(const Apart& apart, const Difference& source);
  [[nodiscard]] static Class class_of(const Difference& source);
  void judge_exactly(const ValueView& base, const ValueView& cand, const Apart& apart,
                     const Difference& source, Comparison& comparison) const;
  void judge_discrete(const Difference& source, Comparison& comparison) const;
  void take(uint32_t match, const ValueView& base, const ValueView& cand, const Apart& apart,
            const Difference& source, const Comparison& comparison);
  void decide(const ValueView& base, const ValueView& cand, const Apart& apart,
              const Difference& source, const NoiseBand* noise, Comparison& comparison);

  Exactness exactness_;
  bool tf32_ = false;
  bool has_birth_ = false;  ///< behind it everything is apart, by no rounding
  CompareStored stored_;    ///< may be empty
  Sources sources_;
  Updates updates_;
};

}  // namespace convtrace::diff

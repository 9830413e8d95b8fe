#pragma once
/// @file births.h
/// Decides whether a difference of two values is a fault or rounding, by where it was born.
///
/// A value is made of its sources (sources.h). A difference that is no larger than the gain of a
/// layer (kGain) times the difference of the sources was passed on; a larger one was born in this
/// value. A birth is rounding while it stays near the unit roundoff of the coarsest type involved.
/// docs/lab/calibration.md lists the measurements for each limit, and the faults that no limit
/// finds.
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

/// Largest born difference that is rounding, in units of the roundoff. A sum in a type wider than
/// the value's rounds once more at its end (measured: 3.6); a sum in the value's own type rounds at
/// each term (measured: 93, with oneDNN's convolution).
inline constexpr double kWideSumLimit = 8, kOwnSumLimit = 256;
/// The same of f4e2m1fn and f8e8m0fnu, to which values of a wider type are rounded once. A step
/// between neighbours is 1 to 4/3 units of the larger, so about half of the elements may be one
/// step off. Not measured on models; 8 units would be larger than the values.
inline constexpr double kCastLimit = 1;
/// Largest change of a norm, relative to the sources' difference: a norm averages over the
/// elements, so it changes less than they do. Measured: 0.48; 1.13 where products are truncated.
inline constexpr double kNormGain = 1.5;
/// Largest change of a norm, relative to the limit of born rounding. A rounded scale, such as the
/// divisor of a spectral norm, changes all elements alike: measured 3.9 units of the roundoff.
inline constexpr double kNormShare = 5.0 / 8;
inline constexpr uint64_t kLeastForNorm = 256;
/// Largest change of the mean of an output in 16 bits whose sources are equal: in standard errors
/// of rounding (measured: 4.8), or as a share of the roundoff (measured: 0.04), since rounding
/// errors of values that lie close together are alike and do not average out.
inline constexpr double kMeanLimit = 10, kMeanShare = 0.1;
/// Largest difference of one stored element of a value whose sources are equal, by the limit for
/// the root mean square of all elements. Measured: 1.2.
inline constexpr double kElementGain = 4;
/// A gradient of a parameter is a sum over rows. Its difference is compared with the norm of the
/// terms, in units of the roundoff. Measured: 19; 270 in f32, where a bias may be added up row by
/// row.
inline constexpr double kGradientLimit = 32, kOwnGradientLimit = 1024;
/// Largest norm of the terms, relative to the norm of their sum, where the terms are unknown: for a
/// parameter that a module uses between its calls of others. Measured: 0.3 in 4,228 gradients of 4
/// models.
inline constexpr double kBetweenCalls = 2;
/// A function with a kink (ReLU, a maximum) passes a gradient on or not by the sign of a value: of
/// values that differ by d (relative) a share of d / pi has another sign, so gradients differ by
/// 0.8 sqrt(d). Measured: 3.8, over several such layers. In a small tensor one element or none has
/// another sign: 1.44 times the root of its share, which kOneFlipGain bounds.
inline constexpr double kKinkGain = 5, kOneFlipGain = 2;
/// Expected number of elements with another sign from which one such element is allowed: once in a
/// thousand gradients, since a run has more gradients than that.
inline constexpr double kRareFlips = 1e-3;
/// Largest difference of a loss, by that of the value it averages divided by the root of its rows.
/// Measured: 5.1.
inline constexpr double kLossLimit = 16;
/// Largest difference that is noise, by that among repetitions of the baseline: two estimates of
/// one distance by sketches may differ by a factor of 2.
inline constexpr double kNoiseGain = 3;

/// The choice of whether rounding may make the two runs differ.
enum class Exactness : uint8_t {
  kExact,   ///< no: both runs do the same and repeat to the bit, so any difference is a fault
  kInexact  ///< yes
};

/// Compares the bytes of two values, where both traces hold them (snapshot_pairs.h).
using CompareStored =
    std::function<std::optional<ElementReport>(const ValueRecord& base, const ValueRecord& cand)>;

class Births {
 public:
  Births(format::Definitions& names, Exactness exactness)
      : exactness_(exactness), sources_(names) {}

  /// @param matches   of the step; must outlive its judgement.
  /// @param arranged  the step's data may be arranged in another way (arranged.h): values that are
  ///                  made of them and do not agree have another form, and are no source.
  void begin_step(const Lineage& lineage, std::span<const Match> matches, bool arranged) {
    matches_ = matches;
    arranged_ = arranged;
    sources_.begin_step(lineage, matches.size());
    updates_.begin_step();
  }
  /// Values of the step that one run alone has. Call it for the baseline first.
  void take_alone(const StepRecords& step, std::span<const uint32_t> indices) {
    sources_.take_alone(step, indices);
  }

  /// Judges the match, if compare() left it open.
  /// @param noise    null: there are no repetitions.
  /// @param allowed  the tolerance of the user, in place of all limits.
  void judge(uint32_t match, const ValueView& base, const ValueView& cand, const NoiseBand* noise,
             std::optional<double> allowed, Comparison& comparison);

  /// Judges the updates of all parameters together: a single one cannot be told from rounding. Call
  /// it after the last match of the step.
  /// @return the updates that are a fault; none if they are rounding.
  [[nodiscard]] std::vector<UpdateFault> judge_updates();

  /// @return whether rounding may make the runs differ, and nothing else has so far.
  [[nodiscard]] bool is_open() const { return exactness_ == Exactness::kInexact && !has_birth_; }

  /// @return the largest difference of a float value whose sources are equal.
  [[nodiscard]] double own_rounding(const ValueRecord& record) const;

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
  [[nodiscard]] double kink_limit(const ValueRecord& record, const Apart& apart) const;
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
  bool tf32_ = false, arranged_ = false;
  std::span<const Match> matches_;
  bool has_birth_ = false;  ///< a fault was found: later differences are no measure of rounding
  bool differs_ = false;    ///< a value that is no update had other bits
  CompareStored stored_;    ///< may be empty
  Sources sources_;
  Updates updates_;
};

}  // namespace convtrace::diff

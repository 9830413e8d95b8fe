#pragma once
/// @file compare.h
/// Holds two records of one value against each other: how far apart, in units of what rounding
/// explains.
///
/// Place:    called once per matched pair; the hot path of the diff.
/// Threads:  pure functions.
/// Source:   docs/design.md "The diff", comparison; dtype semantics in format/stats.h.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "format/dtype.h"
#include "format/events.h"
#include "tools/diff/record.h"

namespace convtrace::diff {

/// Verdict on one pair, ascending in gravity up to kChangedBetween. kBitDifference: the bytes
/// differ, but only their hashes were recorded, so nobody can say by how much.
#define CONVTRACE_DIFF_CLASSES(X)                     \
  X(kIdentical, "identical")                          \
  X(kBitDifference, "bit-difference")                 \
  X(kWithinNoise, "within-noise")                     \
  X(kSuspicious, "suspicious")                        \
  X(kDiverged, "diverged")                            \
  X(kShapeOrDtypeMismatch, "shape-or-dtype-mismatch") \
  X(kNanBorn, "nan-born")                             \
  X(kChangedBetween, "changed-between")               \
  X(kUnmatched, "unmatched")

/// What a difference was found in. The first kMeasuredFields are compared by tolerance.
#define CONVTRACE_DIFF_FIELDS(X)    \
  X(kMean, "mean")                  \
  X(kStd, "std")                    \
  X(kL1, "l1")                      \
  X(kL2, "l2")                      \
  X(kMin, "min")                    \
  X(kMax, "max")                    \
  X(kAmax, "amax")                  \
  X(kSamples, "samples")            \
  X(kNonFinite, "non-finite count") \
  X(kHash, "hash")                  \
  X(kDType, "dtype")                \
  X(kShape, "shape")                \
  X(kNone, "none")

#define CONVTRACE_X(name, text) name,
enum class Class : uint8_t { CONVTRACE_DIFF_CLASSES(CONVTRACE_X) };
enum class Field : uint8_t { CONVTRACE_DIFF_FIELDS(CONVTRACE_X) };
#undef CONVTRACE_X
inline constexpr size_t kClassCount = 9;
inline constexpr size_t kMeasuredFields = 8;

[[nodiscard]] std::string_view to_string(Class value);
/// Nothing that was measured says otherwise; of a bit difference nothing was measured.
[[nodiscard]] inline bool agrees(Class verdict) { return verdict <= Class::kWithinNoise; }
[[nodiscard]] std::string_view to_string(Field value);

/// k of the tolerance k * eps(dtype) * scale, and where "suspicious" ends. Measured on pairs of
/// runs (docs/design.md, "What rounding does"): in a first step no z beyond 3.
inline constexpr double kEpsFactor = 16;
inline constexpr double kSuspiciousLimit = 8;
/// Up to this z a divergence can still be accumulated rounding: another order of summation inside a
/// few layers. Measured: 14.
inline constexpr double kRoundingReach = 64;

/// Distance from 1 to the next number. 0 for integers: they are exact.
[[nodiscard]] double epsilon(format::DType dtype);

/// A value, borrowed from its step.
struct ValueView {
  const ValueRecord& record;
  std::span<const uint64_t> shape;
  std::span<const std::byte> samples;
};
[[nodiscard]] inline ValueView view(const StepRecords& step, const ValueRecord& record) {
  return {record, step.shape_of(record), step.samples_of(record)};
}

using FieldValues = std::array<double, kMeasuredFields>;

/// What rounding explains in values of a type, in units of the scale.
[[nodiscard]] FieldValues tolerances(format::DType dtype, uint64_t count);

/// How far two records of statistics are apart.
struct Measured {
  FieldValues difference;  ///< absolute; infinite when only one side is a number
  FieldValues scale;       ///< what the difference is to be seen against
};
/// The two may be of other types: one run may have been made in higher precision.
[[nodiscard]] Measured measure(const ValueView& base, const ValueView& cand);

/// What else a difference is explained by: what repetitions of the baseline differ by (noise.h),
/// and what carries rounding further (rounding.h).
struct NoiseBand {
  FieldValues absolute{};  ///< of this very value
  FieldValues relative{};  ///< of values like it, in units of the scale
  bool bits = false;       ///< even the hashes of repetitions differ
};
/// Makes a band as wide as `seen`, where that is a number.
void widen_band(FieldValues& band, const FieldValues& seen);

struct Comparison {
  Class verdict = Class::kIdentical;
  Field field = Field::kNone;  ///< the field with the largest z
  double difference = 0;       ///< in that field; NaN where no number says it
  double tolerance = 0;        ///< that was allowed in that field; NaN as above
  double z = 0;                ///< difference / tolerance
  bool bits_differ = false;    ///< of bytes that somebody wrote
  bool carried = false;        ///< diverged but for what it was made of (drift.h)
};
/// Of bytes that nobody wrote.
inline constexpr Comparison kUnwritten = {.verdict = Class::kWithinNoise, .field = Field::kHash};

/// @param noise    null: nothing but its own rounding explains a difference.
/// @param relative what the user allows, in units of the scale, in place of what rounding explains;
/// beyond it nothing is merely suspicious.
[[nodiscard]] Comparison compare(const ValueView& base, const ValueView& cand,
                                 const NoiseBand* noise, std::optional<double> relative = {});

}  // namespace convtrace::diff

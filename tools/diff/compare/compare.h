#pragma once
/// @file compare.h
/// Compares the two runs' records of one value: whether they are equal, and the distance if they
/// are not. Whether a difference is rounding depends on the value's sources: births.h decides that.
///
/// Place:    called once per matched pair; the hot path of the diff.
/// Threads:  pure functions.
/// Source:   docs/comparison.md "One value"; dtype semantics in format/model/stats.h.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "format/model/dtype.h"
#include "format/model/events.h"
#include "tools/trace/model/distance.h"
#include "tools/trace/model/record.h"

namespace convtrace::diff {

/// Verdict on one pair, ascending in gravity up to kChangedBetween.
/// kOtherForm:     an input of another type or shape, while the outputs made of it agree.
/// kBitDifference: the bytes differ, but only hashes were recorded, so the distance is unknown.
/// kSuspicious:    the difference is larger than rounding explains in this value, but no larger
///                 than the value's sources explain.
#define CONVTRACE_DIFF_CLASSES(X)                     \
  X(kIdentical, "identical")                          \
  X(kOtherForm, "other-form")                         \
  X(kBitDifference, "bit-difference")                 \
  X(kWithinNoise, "within-noise")                     \
  X(kSuspicious, "suspicious")                        \
  X(kDiverged, "diverged")                            \
  X(kShapeOrDtypeMismatch, "shape-or-dtype-mismatch") \
  X(kNanBorn, "nan-born")                             \
  X(kChangedBetween, "changed-between")               \
  X(kUnmatched, "unmatched")

/// The measure in which the largest difference was found.
#define CONVTRACE_DIFF_FIELDS(X)    \
  X(kRms, "rms difference")         \
  X(kNorm, "norm")                  \
  X(kMean, "mean")                  \
  X(kElement, "element")            \
  X(kUpdate, "update")              \
  X(kNonFinite, "non-finite count") \
  X(kHash, "hash")                  \
  X(kDType, "dtype")                \
  X(kShape, "shape")                \
  X(kNone, "none")

#define CONVTRACE_X(name, text) name,
enum class Class : uint8_t { CONVTRACE_DIFF_CLASSES(CONVTRACE_X) };
enum class Field : uint8_t { CONVTRACE_DIFF_FIELDS(CONVTRACE_X) };
#undef CONVTRACE_X
inline constexpr size_t kClassCount = 10;

[[nodiscard]] std::string_view to_string(Class value);
/// @return whether no measurement contradicts equality. For a kBitDifference nothing was measured.
[[nodiscard]] inline bool agrees(Class verdict) { return verdict <= Class::kWithinNoise; }
/// @return whether the values were measured, and agree.
[[nodiscard]] inline bool is_match(Class verdict) {
  return agrees(verdict) && verdict != Class::kBitDifference;
}
[[nodiscard]] std::string_view to_string(Field value);
/// @return whether the size of a difference in that field is a number.
[[nodiscard]] inline bool is_measured(Field field) { return field <= Field::kUpdate; }

/// A value of one run; its data are borrowed from the step.
struct ValueView {
  const ValueRecord& record;
  std::span<const uint64_t> shape;
  std::span<const std::byte> samples;
};
[[nodiscard]] inline ValueView view(const StepRecords& step, const ValueRecord& record) {
  return {record, step.shape_of(record), step.samples_of(record)};
}

/// @return whether the distance of the two is known from averages only: neither has a sketch or
/// samples of all elements.
[[nodiscard]] bool is_known_by_averages(const ValueView& base, const ValueView& cand);

/// Sketches are stored in f32, so a relative distance below this is lost in their rounding.
inline constexpr double kSketchFloor = 0x1p-22;
/// @return the relative distance below which the sketches of two values are no evidence:
/// kSketchFloor for types finer than f32, else 0; 0 without sketches.
[[nodiscard]] double sketch_floor(const ValueView& base, const ValueView& cand);

/// @return the root mean square of `count` elements with that norm; 0 if there are none.
[[nodiscard]] inline double rms_of(double norm, uint64_t count) {
  return count == 0 ? 0 : norm / std::sqrt(static_cast<double>(count));
}

/// The distance of two records of statistics of float values. Relative numbers are in units of the
/// larger norm, and 0 if both norms are 0.
struct Apart {
  double rms = 0;      ///< |a - b|
  bool exact = false;  ///< `rms` is of all elements; else it is estimated, from sketches as a rule
  double norm = 0;     ///< ||a| - |b||
  double mean = 0;     ///< |mean(a) - mean(b)| in units of the root mean square
  double element = 0;  ///< ElementReport::max_scaled, where both values are stored
  double size = 0;     ///< the larger norm itself
  double floor = 0;    ///< the resolution of `rms`: smaller distances cannot be told from 0
  uint64_t count = 0;  ///< finite elements
};
/// Measures the distance of two records. Without sketches (older traces) `rms` is a lower bound
/// from the samples and the other statistics. The two may have different types, since one run may
/// have been made in higher precision.
[[nodiscard]] Apart measure(const ValueView& base, const ValueView& cand);

struct Comparison {
  Class verdict = Class::kIdentical;
  Field field = Field::kNone;  ///< the field with the largest z
  double difference = 0;       ///< in that field, relative; NaN if it has no size
  double tolerance = 0;        ///< allowed in that field; NaN as above
  double z = 0;                ///< difference / tolerance
  /// Largest relative difference of the sources, and the worst verdict among the inputs.
  double source = 0;
  Class worst_input = Class::kIdentical;
  bool bits_differ = false;  ///< the bytes of memory that an op has written differ
  bool bits_known = true;    ///< false: the hashes have two versions, or are of pieces
  bool born = false;         ///< the difference is larger than the sources explain
  bool exact = false;        ///< the difference is of all elements, and no estimate or bound
  bool waived = false;       ///< --ignore covers the value
  /// In exact comparison (Exactness::kExact): rounding would explain the difference.
  bool like_rounding = false;
};
/// @return whether the value is an input of another type or shape. The outputs of the call are
/// judged as if it were equal, and decide whether it matters (other_forms.h).
[[nodiscard]] inline bool is_other_form(const ValueRecord& record, const Comparison& comparison) {
  const bool form = comparison.field == Field::kDType || comparison.field == Field::kShape;
  return form && record.kind == Role::kInput;
}
[[nodiscard]] inline bool has_statistics(const ValueRecord& record) {
  return record.capture != format::Capture::kHash;
}
[[nodiscard]] inline bool is_float(const ValueRecord& record) {
  return format::number_class(record.dtype) == format::NumberClass::kFloat;
}
/// @return whether the value is an input of a root module, or of a criterion.
[[nodiscard]] inline bool is_data(const ValueRecord& record) {
  return record.kind == Role::kInput && record.key.phase == format::Phase::kData;
}
/// @return whether the value is data from outside. Floats behind an output may be made of it, such
/// as a criterion's.
[[nodiscard]] inline bool is_given(const ValueRecord& record, bool is_behind_output) {
  return is_data(record) && !(is_behind_output && is_float(record));
}
/// The outcome of comparing a set of values.
enum class Shown : uint8_t { kNotCompared, kEqual, kDifferent };

/// The comparison of memory that no op has written: its contents do not matter.
inline constexpr Comparison kUnwritten = {.verdict = Class::kWithinNoise, .field = Field::kHash};

/// @return whether two values have the same statistics apart from their hashes, which have two
/// versions.
[[nodiscard]] bool alike_but_for_hashes(const format::Stats& base, format::Stats cand);
/// The comparison of values that are known only by hashes of different versions.
inline constexpr Comparison kUnknown = {
    .verdict = Class::kBitDifference, .field = Field::kHash, .bits_known = false};

/// @return a comparison whose difference has no size.
[[nodiscard]] constexpr Comparison decided(Class verdict, Field field) {
  constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();
  return {.verdict = verdict,
          .field = field,
          .difference = kNoNumber,
          .tolerance = kNoNumber,
          .z = verdict >= Class::kDiverged ? std::numeric_limits<double>::infinity() : 0,
          .bits_differ = true};
}

/// Compares a pair without its sources.
/// @return kSuspicious with field kRms and no numbers for float values whose statistics differ,
/// which births.h judges; kDiverged with field kHash for integers that differ.
[[nodiscard]] Comparison compare(const ValueView& base, const ValueView& cand);

}  // namespace convtrace::diff

#pragma once
/// @file compare.h
/// Compares the two runs' records of one value: whether they are equal, and if not, how far apart
/// they are. Whether a difference is rounding depends on the value's sources: births.h decides
/// that.
///
/// Place:    called once per matched pair; the hot path of the diff.
/// Threads:  pure functions.
/// Source:   docs/comparison.md "One value"; dtype semantics in format/model/stats.h; estimates
///           from sketches: format/FORMAT.md "Sketches".

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "format/model/dtype.h"
#include "format/model/events.h"
#include "tools/diff/model/record.h"

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

/// In which measure the largest difference was found.
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
/// @return whether nothing that was measured contradicts equality. Of a bit difference nothing was
/// measured.
[[nodiscard]] inline bool agrees(Class verdict) { return verdict <= Class::kWithinNoise; }
[[nodiscard]] std::string_view to_string(Field value);
/// @return whether the size of a difference in that field is a number.
[[nodiscard]] inline bool is_measured(Field field) { return field <= Field::kUpdate; }

/// Unit roundoff: half the distance from 1 to the next number. 0 for integers: they are exact.
[[nodiscard]] double unit_roundoff(format::DType dtype);

/// A value, borrowed from its step.
struct ValueView {
  const ValueRecord& record;
  std::span<const uint64_t> shape;
  std::span<const std::byte> samples;
};
[[nodiscard]] inline ValueView view(const StepRecords& step, const ValueRecord& record) {
  return {record, step.shape_of(record), step.samples_of(record)};
}

/// @return whether of their distance nothing is known but what averages say: no sketch, no element.
[[nodiscard]] bool is_known_by_averages(const ValueView& base, const ValueView& cand);

/// A sketch is stored in f32: what is smaller beside the tensor's norm says nothing.
inline constexpr double kSketchFloor = 0x1p-22;
/// @return below which relative difference the sketches of two values say nothing: kSketchFloor for
/// types finer than f32, else 0, and 0 without sketches.
[[nodiscard]] double sketch_floor(const ValueView& base, const ValueView& cand);

/// Root mean square of `count` elements of that norm; 0 of none.
[[nodiscard]] inline double rms_of(double norm, uint64_t count) {
  return count == 0 ? 0 : norm / std::sqrt(static_cast<double>(count));
}

/// How far two records of statistics of float values are apart. Relative numbers are in units of
/// the larger of both norms; they are 0 where both norms are.
struct Apart {
  double rms = 0;      ///< |a - b|: estimated from sketches, exact for tensors that are kept whole
  double norm = 0;     ///< ||a| - |b||
  double mean = 0;     ///< |mean(a) - mean(b)| in units of the root mean square
  double element = 0;  ///< ElementReport::max_scaled, where both values are stored
  double size = 0;     ///< the larger norm itself
  double floor = 0;    ///< of `rms`: it says nothing of what is smaller
  uint64_t count = 0;  ///< finite elements
};
/// Without sketches (older traces) the samples and the other statistics stand for the tensor: then
/// `rms` is at least what these show. The two may be of other types: one run may have been made in
/// higher precision.
[[nodiscard]] Apart measure(const ValueView& base, const ValueView& cand);

struct Comparison {
  Class verdict = Class::kIdentical;
  Field field = Field::kNone;  ///< the field with the largest z
  double difference = 0;       ///< in that field, relative; NaN where no number says it
  double tolerance = 0;        ///< that was allowed in that field; NaN as above
  double z = 0;                ///< difference / tolerance
  /// Largest relative difference of the sources, and the worst verdict among the inputs.
  double source = 0;
  Class worst_input = Class::kIdentical;
  bool bits_differ = false;  ///< of bytes that somebody wrote
  bool bits_known = true;    ///< false: the hashes are of two versions, and nothing else differs
  bool born = false;         ///< the sources do not explain the difference
  bool waived = false;       ///< --ignore covers the value
  /// In exact comparison (Exactness::kExact): rounding would explain the difference.
  bool like_rounding = false;
};
/// @return whether the value is an input of another type or shape. The outputs of the call are
/// judged as if it were equal, and decide whether it matters (other_forms.h).
[[nodiscard]] inline bool is_other_form(const ValueRecord& record, const Comparison& comparison) {
  const bool form = comparison.field == Field::kDType || comparison.field == Field::kShape;
  return form && record.kind == SlotKind::kInput;
}
/// The comparison of memory that no op has written.
inline constexpr Comparison kUnwritten = {.verdict = Class::kWithinNoise, .field = Field::kHash};

/// @return whether two values have the same statistics, where their hashes are of two versions.
[[nodiscard]] bool alike_but_for_hashes(const format::Stats& base, format::Stats cand);
/// That of values of which only hashes are known, of two versions.
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

/// Compares a pair by itself, without its sources.
/// @return kSuspicious with field kRms and no numbers for float values with statistics that differ:
/// births.h judges them. kDiverged with field kHash for integers that differ.
[[nodiscard]] Comparison compare(const ValueView& base, const ValueView& cand);

}  // namespace convtrace::diff

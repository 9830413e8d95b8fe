#include "tools/diff/shown/shown_causes.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tools/common/element.h"
#include "tools/common/text.h"
#include "tools/diff/align/align.h"
#include "tools/diff/compare/compare.h"
#include "tools/diff/shown/shown_cause.h"

namespace convtrace::diff {
namespace {

bool is_behind_loss(const ValueRecord& record) {
  return record.key.phase == format::Phase::kBackward || is_parameter_gradient(record.kind);
}

constexpr double kSigmas = 4;      // of a deviation, whose own is 1/sqrt(2 n) of it
constexpr double kOfShape = 0.6;   // deviation of shape() times sqrt(n)
constexpr double kLeastOwn = 0.5;  // of two norms that are added up, to be no disturbed copy
constexpr double kEqual = 1e-12;   // rearranged: of sums that are added in another order

struct Kind {
  bool fits = false;
  double apart = 0, expected = 0;  ///< squares of distances
};

/// @return whether the deviations of two weights agree within their sampling error.
bool as_wide(const format::Stats& a, const format::Stats& b) {
  const double n = static_cast<double>(a.count);
  return std::abs(a.std - b.std) <= kSigmas * std::max(a.std, b.std) / std::sqrt(2 * n);
}

/// @return the mean magnitude by the deviation: 0.87 of uniform numbers, 0.80 of normal ones.
double shape_of(const ValueRecord& record) {
  const double n = static_cast<double>(record.stats.count);
  return tools::wide_as_double(record.dtype, record.stats.l1) / (n * record.stats.std);
}

/// @return whether a weight's elements have tails no heavier than normal numbers have. Otherwise
/// the sampling error of its deviation is larger.
bool has_light_tails(const ValueRecord& record) {
  constexpr double kNormal = 0.798;
  const double chance = kSigmas * kOfShape / std::sqrt(static_cast<double>(record.stats.count));
  return record.stats.std == 0 || shape_of(record) >= kNormal - chance;
}

/// Two weights of more elements than are stored as they are.
Kind kind_of(const ValueView& base, const ValueView& cand) {
  const format::Stats &a = base.record.stats, &b = cand.record.stats;
  const double n = static_cast<double>(a.count);
  const double larger = std::max(a.std, b.std);
  const bool alike = as_wide(a, b) &&
                     std::abs(shape_of(base.record) - shape_of(cand.record)) <=
                         kSigmas * kOfShape / std::sqrt(n) &&
                     std::abs(a.l2 - b.l2) > kEqual * std::max(a.l2, b.l2);
  const Apart apart = measure(base, cand);
  const double distance = apart.rms * apart.size, means = a.mean - b.mean;
  return {larger > 0 && alike, distance * distance,
          n * (a.std * a.std + b.std * b.std + means * means)};
}

/// Finds out whether the initial weights of two runs are different random numbers of one
/// distribution: drawn with another seed, or after other draws. The evidence: the standard
/// deviations of each differing weight agree within their sampling error, and the two weights are
/// as far apart as independent numbers. Weights that are scaled, disturbed, rearranged or
/// initialised by another rule do not pass.
/// @param matches  of the first common step.
std::optional<ShownCause> drawn_otherwise(const StepRecords& base, const StepRecords& cand,
                                          std::span<const Match> matches) {
  uint64_t count = 0;
  Kind all;
  for (const Match& match : matches) {
    const ValueRecord &a = base.values[match.base], &b = cand.values[match.cand];
    if (!is_first_weight(a) || a.stats.hash == b.stats.hash) continue;
    if (a.stats.count != b.stats.count || a.dtype != b.dtype) return std::nullopt;
    if (!a.stats.sketch.is_known() || !b.stats.sketch.is_known()) continue;  // too few elements
    const Kind one = kind_of(view(base, a), view(cand, b));
    if (!one.fits) return std::nullopt;
    all.apart += one.apart;
    all.expected += one.expected;
    ++count;
  }
  if (count == 0 || all.apart < kLeastOwn * all.expected) return std::nullopt;
  return ShownCause{
      "seed",
      "the first weights are other random numbers of the same kind: another seed, or numbers that "
      "one run alone drew before them",
      {tools::counted(count, "weight") + " of as large deviations have nothing in common"},
      false};
}

/// Finds out whether the root is a first weight of another deviation than random numbers of one
/// distribution have by chance. No generator and no seed explains that.
/// @param what  names the root.
std::optional<ShownCause> of_another_width(const ValueRecord& base, const ValueRecord& cand,
                                           const std::string& what) {
  const format::Stats &a = base.stats, &b = cand.stats;
  const bool is_measured = a.sketch.is_known() && b.sketch.is_known() && a.count == b.count;
  if (!is_measured || as_wide(a, b) || !has_light_tails(base) || !has_light_tails(cand))
    return std::nullopt;
  return ShownCause{"initialization",
                    what + " is initialized or loaded otherwise: its elements deviate by " +
                        tools::number_text(a.std) + " | " + tools::number_text(b.std),
                    {"random numbers of one distribution do not differ by so much"},
                    false};
}

}  // namespace

void ShownCauses::take(const StepRecords& step, bool in_base) {
  if (!begun_) gradients_.take(step, in_base);
  data_.take(step, in_base);
}

void ShownCauses::begin(const StepRecords& base, const StepRecords& cand,
                        std::span<const Match> matches, const Match& root, std::string what) {
  const ValueRecord& record = base.values[root.base];
  begun_ = true;
  if (is_first_weight(record)) {
    at_root_ = drawn_otherwise(base, cand, matches);
    if (!at_root_) at_root_ = of_another_width(record, cand.values[root.cand], what);
  }
  if (is_behind_loss(record) || is_scalar_result(record))
    at_root_ = gradients_.show(base, cand, matches, is_behind_loss(record));
  data_.begin(base, cand, matches, root, std::move(what));
}

std::optional<ShownCause> ShownCauses::cause() const { return at_root_ ? at_root_ : data_.cause(); }

}  // namespace convtrace::diff

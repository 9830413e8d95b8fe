#include "tools/diff/births/births.h"

#include <algorithm>
#include <cmath>

namespace convtrace::diff {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
/// TF32 keeps 10 bits of a mantissa.
constexpr double kTf32Unit = 0x1p-11;
constexpr uint64_t kLeastForNorm = 256;
/// Expected number of elements with another sign from which one such element is allowed: once in a
/// thousand gradients, since a run has more gradients than that.
constexpr double kRareFlips = 1e-3;
constexpr std::array kNoLimits = {kInfinite, kInfinite, kInfinite, kInfinite};

/// @return whether a type is only cast to, and no arithmetic is done in it.
bool is_cast_to(format::DType dtype) {
  return dtype == format::DType::kF4E2M1FN || dtype == format::DType::kF8E8M0FNU;
}

bool is_narrow(double unit) { return unit > 0x1p-20; }

uint64_t rows_of(const ValueView& value) {
  if (value.shape.empty() || value.shape.back() == 0) return 1;
  return std::max<uint64_t>(value.record.stats.count / value.shape.back(), 1);
}

/// @return whether a value differs that training makes of the step's data, anew in each step. Numbers
/// of another precision and infinities are no arrangement.
bool is_of_data(const ValueRecord& base, const ValueRecord& cand, const Comparison& comparison) {
  using enum Role;
  constexpr Role kRoles[] = {kInput, kOutput, kGradOutput, kGradInput};
  const bool is_precision = base.dtype != cand.dtype &&
                            format::number_class(base.dtype) == format::number_class(cand.dtype);
  return std::ranges::find(kRoles, base.kind) != std::end(kRoles) &&
         base.key.phase != format::Phase::kEvaluation && comparison.bits_differ &&
         !is_match(comparison.verdict) && comparison.verdict <= Class::kShapeOrDtypeMismatch &&
         !is_precision;
}

bool is_activation_gradient(const ValueRecord& record) {
  return record.kind == Role::kGradOutput || record.kind == Role::kGradInput;
}

/// @return whether the value has another shape since what it is made of has.
bool is_shape_passed_on(const ValueRecord& record, const Comparison& comparison,
                        const Difference& source) {
  return source.other_shape && comparison.field == Field::kShape &&
         (record.kind == Role::kInput || record.kind == Role::kOutput ||
          is_activation_gradient(record));
}

/// @return whether the value has another form, which is no fault by itself: what is made of it shows
/// whether it matters.
bool is_form(const ValueRecord& record, const Comparison& comparison, const Difference& source) {
  return comparison.verdict == Class::kOtherForm || is_other_form(record, comparison) ||
         is_shape_passed_on(record, comparison, source);
}

}  // namespace

double Births::unit_of(const ValueRecord& record) const {
  const double unit = unit_roundoff(record.dtype);
  return tf32_ && record.dtype == format::DType::kF32 ? kTf32Unit : unit;
}

Births::Roundoff Births::roundoff_of(double of_sources,
                                     std::initializer_list<const ValueRecord*> values) const {
  Roundoff largest{.unit = of_sources};
  for (const ValueRecord* value : values) {
    double& of_type = is_cast_to(value->dtype) ? largest.cast : largest.unit;
    of_type = std::max(of_type, unit_of(*value));
  }
  return largest;
}

double Births::Roundoff::of(Against type) const {
  if (type == Against::kUnit) return std::max(unit, cast);
  if (type == Against::kCasts) return cast;
  return is_narrow(unit) == (type == Against::kWideSums) ? unit : 0;
}

/// @return the largest difference that is born.
double Births::born(const Roundoff& roundoff) const {
  return limit_of(table_, kOthers, Field::kRms, [&](const BirthRow& row) {
    return row.against <= Against::kCasts ? row.limit * roundoff.of(row.against) : kNotApplied;
  });
}

double Births::own_rounding(const ValueRecord& record) const {
  return born(roundoff_of(0, {&record}));
}

/// After a birth all values differ, so their elements are not compared any more.
Apart Births::measure_pair(const ValueView& base, const ValueView& cand) const {
  Apart apart = measure(base, cand);
  if (!stored_ || has_birth_ || base.record.in_pieces) return apart;
  const auto elements = stored_(base.record, cand.record);
  if (!elements) return apart;
  apart.element = elements->max_scaled;
  const bool whole = elements->compared == elements->count;
  if (whole && apart.size > 0) {
    apart.rms = elements->distance / apart.size;
    apart.exact = true;
    apart.floor = 0;
  }
  return apart;
}

uint16_t Births::kind_of(const ValueRecord& record) const {
  if (is_scalar_result(record)) return kLosses;
  if (sources_.is_summed_gradient(record)) return kSums;
  if (record.kind == Role::kBuffer) return kBuffers;
  if (is_activation_gradient(record)) return kGradients;
  return record.kind == Role::kOutput && is_narrow(unit_of(record)) ? kNarrowOutputs : kOthers;
}

/// The ratio of what a value is made of to the value itself, which is large where terms cancel.
double Births::cancelled(uint16_t kind, const ValueView& base, const Apart& apart,
                         const Difference& source) const {
  if (!(apart.size > 0)) return 1;
  if (kind != kSums) return std::max(1.0, source.size / rms_of(apart.size, apart.count));
  const double terms = std::max(sources_.summed_norm(base), apart.size) / apart.size;
  const bool is_unknown = sources_.is_between_calls(base.record) && apart.count > format::kMaxWhole;
  return is_unknown ? std::min(terms, limit_of(table_, kTerms)) : terms;
}

Births::Limits Births::limits_of(const ValueView& base, const ValueView& cand, const Apart& apart,
                                 const Difference& source, const NoiseBand* noise) const {
  const ValueRecord& record = base.record;
  const uint16_t kind = kind_of(record);
  const Roundoff roundoff = roundoff_of(source.unit, {&record, &cand.record});
  const double scale = (kind & kValues) != 0 ? 1 : cancelled(kind, base, apart, source);
  const double share = sources_.signs_of(record).rms;
  const auto count = static_cast<double>(apart.count);
  const auto allowed = [&](const BirthRow& row) {
    switch (row.against) {
      case Against::kWideSums:
      case Against::kOwnSums:
      case Against::kCasts: return row.limit * scale * roundoff.of(row.against);
      case Against::kUnit: return row.limit * roundoff.of(row.against);
      case Against::kMeanError: return row.limit * roundoff.of(Against::kUnit) / std::sqrt(count);
      case Against::kBorn: return row.limit * born(roundoff);
      case Against::kSources: return row.limit * scale * source.rms;
      case Against::kLoss: {
        const double rows = std::sqrt(static_cast<double>(source.rows));
        return row.limit * scale * std::max(unit_roundoff(format::DType::kF32), source.rms / rows);
      }
      case Against::kBefore: return row.limit * sources_.of_buffer_before(record);
      case Against::kSigns: return row.limit * std::sqrt(share);
      case Against::kOneSign: return share * count >= kRareFlips ? row.limit / std::sqrt(count) : 0;
      case Against::kNoise:
        return noise == nullptr ? kNotApplied : row.limit * noise->of(row.measure);
      default: return row.limit;
    }
  };
  Limits limits = kNoLimits;
  for (const Field measure : {Field::kRms, Field::kNorm, Field::kMean, Field::kElement}) {
    const bool is_held = measure == Field::kNorm ? apart.count >= kLeastForNorm
                                                 : measure == Field::kRms || source.equal;
    if (is_held) limits[static_cast<size_t>(measure)] = limit_of(table_, kind, measure, allowed);
  }
  return limits;
}

void Births::weigh(const Apart& apart, const Limits& limits, const Difference& source,
                   Comparison& comparison) const {
  comparison.z = -1;
  const std::array differences = {apart.rms, apart.norm, apart.mean, apart.element};
  for (size_t i = 0; i < limits.size(); ++i) {
    const double difference = differences[i], limit = limits[i];
    const double z = limit > 0 ? difference / limit : (difference > 0 ? kInfinite : 0);
    if (z <= comparison.z) continue;
    comparison.field = static_cast<Field>(i);
    comparison.difference = difference;
    comparison.tolerance = limit;
    comparison.z = z;
    comparison.exact =
        comparison.field == Field::kRms ? apart.exact : comparison.field == Field::kElement;
  }
  comparison.born = comparison.z > 1 && std::isfinite(source.rms);
}

/// Judges a float value with statistics in both runs and different bits.
void Births::decide(const ValueView& base, const ValueView& cand, const Apart& apart,
                    const Difference& source, const NoiseBand* noise, Comparison& comparison) {
  weigh(apart, limits_of(base, cand, apart, source, noise), source, comparison);
  if (comparison.z > 1) {
    comparison.verdict = Class::kDiverged;
  } else if (apart.rms <= born(roundoff_of(source.unit, {&base.record})) || noise != nullptr) {
    comparison.verdict = Class::kWithinNoise;
  } else {
    comparison.verdict = has_birth_ ? Class::kDiverged : Class::kSuspicious;
  }
}

/// The class of the difference of a value's sources.
Class Births::class_of(const Difference& source) const {
  if (source.equal) return Class::kIdentical;
  if (source.other_shape) return Class::kOtherForm;
  if (!source.known) return Class::kBitDifference;
  return source.rms <= born(roundoff_of(source.unit, {})) ? Class::kWithinNoise
                                                          : Class::kSuspicious;
}

void Births::judge_exactly(const ValueView& base, const ValueView& cand, const Apart& apart,
                           const Difference& source, Comparison& comparison) const {
  if (comparison.field == Field::kRms) {
    weigh(apart, limits_of(base, cand, apart, source, nullptr), source, comparison);
    comparison.like_rounding = comparison.z <= 1;
    weigh(apart, {}, source, comparison);
  }
  comparison.verdict = std::max(comparison.verdict, Class::kDiverged);
  comparison.born = is_update(base.record) ? sources_.is_clean(base.record) : source.equal;
}

/// Judges integers, types, shapes and NaN, to which no tolerance applies.
void Births::judge_discrete(const Difference& source, Comparison& comparison) const {
  if (comparison.verdict < Class::kDiverged) return;
  const bool is_integer = comparison.field == Field::kHash;
  comparison.born = is_integer ? source.equal : std::isfinite(source.rms);
  // An index that was chosen among values that differ may be another one.
  if (is_integer && !source.equal && !has_birth_) comparison.verdict = Class::kSuspicious;
}

void Births::judge(uint32_t match, const ValueView& base, const ValueView& cand,
                   const NoiseBand* noise, std::optional<double> allowed, Comparison& comparison) {
  const ValueRecord& record = base.record;
  const bool is_saved = record.kind == Role::kNeeded && exactness_ == Exactness::kInexact;
  if (record.kind == Role::kInitialBuffer || is_saved) {
    // A first buffer may be memory that the program has yet to write, and another program saves
    // other tensors, or their elements in another order. Where it matters, an output shows it.
    comparison.verdict = std::min(comparison.verdict, Class::kBitDifference);
    return;
  }
  const bool is_float = comparison.field == Field::kRms;
  const bool is_exact = exactness_ == Exactness::kExact && !allowed && comparison.bits_differ &&
                        !is_other_form(record, comparison);
  const Difference source = sources_.of(match, base, cand);
  const Apart apart = is_float ? measure_pair(base, cand) : Apart{};
  comparison.source = source.rms;
  comparison.worst_input = class_of(source);
  if (comparison.field == Field::kHash && noise != nullptr && noise->bits) {
    comparison.verdict = Class::kWithinNoise;
  } else if (comparison.verdict == Class::kBitDifference && !is_exact &&
             sources_.is_described(match)) {
    // The record of its producer has the size of the difference.
    comparison.verdict = comparison.worst_input;
    if (has_birth_ && !agrees(comparison.verdict)) comparison.verdict = Class::kDiverged;
  } else if (is_exact) {
    judge_exactly(base, cand, apart, source, comparison);
  } else if (is_float && allowed) {
    weigh(apart, {*allowed, *allowed, kInfinite, kInfinite}, source, comparison);
    comparison.verdict = comparison.z > 1 ? Class::kDiverged : Class::kWithinNoise;
    comparison.born = comparison.z > 1 && source.rms <= *allowed;
  } else if (is_float && is_update(record) && !sources_.is_clean(record) &&
             !(record.parted || cand.record.parted)) {
    // The effect of rounding on an optimizer is judged for all updates together.
    weigh(apart, kNoLimits, source, comparison);
    comparison.verdict = has_birth_ ? Class::kDiverged : Class::kSuspicious;
  } else if (is_float) {
    decide(base, cand, apart, source, noise, comparison);
  } else {
    judge_discrete(source, comparison);
  }
  if (comparison.waived) {
    comparison.verdict = Class::kWithinNoise;
    comparison.born = false;
  }
  if (arranged_ && is_of_data(record, cand.record, comparison)) {
    comparison.verdict = Class::kOtherForm;
    comparison.born = false;
  }
  if (is_shape_passed_on(record, comparison, source)) comparison.born = false;
  // A wrong guess (align.h) pairs two values that have nothing to do with each other.
  if (matches_[match].confidence < kLeastConfidence && !agrees(comparison.verdict)) {
    sources_.take_unknown(match);
    return;
  }
  take(match, base, cand, apart, source, comparison);
  has_birth_ |= comparison.born && comparison.verdict >= Class::kDiverged &&
                !is_form(record, comparison, source);
}

/// Records the difference of a value, which may be a source of later ones.
void Births::take(uint32_t match, const ValueView& base, const ValueView& cand, const Apart& apart,
                  const Difference& source, const Comparison& comparison) {
  const ValueRecord& record = base.record;
  differs_ |= comparison.bits_differ && !is_update(record);
  Difference own{.rms = std::max(apart.rms, apart.floor),
                 .unit = is_cast_to(record.dtype) ? 0 : unit_of(record),
                 .equal = !comparison.bits_differ,
                 .rows = rows_of(base),
                 .count = record.stats.count,
                 .size = rms_of(record.stats.l2, record.stats.finite)};
  if (record.capture == format::Capture::kHash) {  // its producer's record has the statistics
    own.rows = source.rows;
    own.count = source.count;
    own.size = source.size;
  }
  if (is_form(record, comparison, source)) {
    own.rms = source.rms;
    own.unit = source.unit;
    own.known = false;
    own.other_shape = comparison.field == Field::kShape;
  } else if (comparison.verdict >= Class::kShapeOrDtypeMismatch) {
    own.rms = kInfinite;
  } else if (comparison.field == Field::kHash &&
             (comparison.bits_differ || !comparison.bits_known)) {
    own.equal = own.equal && source.equal;
    own.rms = source.rms;  // the same difference as its sources, since nothing else is known
    own.known = sources_.is_described(match) && source.known;
  }
  sources_.take(match, record, cand.record, own);
  if (is_parameter_gradient(record.kind)) updates_.take_gradient(record, cand.record);
  if (record.kind != Role::kParameter) return;
  if (is_update(record)) {
    updates_.take(match, base, cand, sources_.of_gradient(record), unit_of(record), !differs_);
  } else {
    updates_.begin_with(base, cand);
  }
  sources_.take_parameter(record, apart, base.shape.empty() ? 1 : base.shape.front());
}

std::vector<UpdateFault> Births::judge_updates() {
  if (exactness_ == Exactness::kExact || has_birth_) return {};
  return updates_.judge();
}

}  // namespace convtrace::diff

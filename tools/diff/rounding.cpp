#include "tools/diff/rounding.h"

#include <algorithm>
#include <cmath>

#include "tools/common/element.h"

namespace convtrace::diff {
namespace {

using format::DType;

/// An update that went the other way makes two; and the samples need not show the largest.
constexpr double kUpdatesApart = 3;

/// Gradients of an element agree, and its updates do: in parts of themselves, and of the largest
/// update of the tensor.
constexpr double kSameGradient = 0.01, kSameUpdate = 0.05, kLeastUpdate = 0.01;
/// So many elements have to say so.
constexpr size_t kLeastElements = 3;

/// Roots of numbers of terms: up to which kEpsFactor stands, and how many times that is the most.
constexpr double kTermsKnown = 8, kMostTerms = 16;

/// For so many updates a difference of gradients goes on in the same direction: optimizers average.
constexpr uint32_t kMomentum = 10;

/// A loss is an average, though it has one element.
constexpr uint64_t kAveraged = 4096;

uint64_t elements_of(const ValueRecord& record) {
  return record.kind == SlotKind::kLoss ? kAveraged : record.stats.count;
}

/// What errors of `size` in each of `count` elements come to in each field, their signs random.
FieldValues errors(double size, uint64_t count) {
  const double root = std::sqrt(static_cast<double>(std::max<uint64_t>(count, 1)));
  return {size / root, size / root, size * root, size, size, size, size, size};
}

/// Among which of a weight's rows the gradient of a module's output is divided: each of a row's
/// elements is a sum over all of the row's share.
uint64_t rows_of(const ValueView& value) {
  const bool has_rows = value.shape.size() > 1 && value.shape.front() > 0;
  return has_rows ? value.shape.front() : value.record.stats.count;
}

std::vector<double> samples_of(const ValueView& value) {
  return tools::decode_elements(value.record.dtype, value.samples);
}

double largest_move(const std::vector<double>& from, const std::vector<double>& to) {
  double largest = 0;
  for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    const double move = std::abs(to[i] - from[i]);
    if (std::isfinite(move)) largest = std::max(largest, move);
  }
  return largest;
}

bool is_measured(const ValueRecord& record) { return record.capture != format::Capture::kHash; }

bool is_rounding(const Comparison& c) {
  return c.bits_differ && (c.verdict == Class::kWithinNoise || c.verdict == Class::kSuspicious);
}

}  // namespace

void Rounding::widen(const ValueView& base, const ValueView& cand,
                     std::optional<NoiseBand>& band) const {
  const ValueRecord& record = base.record;
  const double own = epsilon(record.dtype), coarsest = epsilon(coarsest_);
  if (own == 0) return;
  const auto widened = [&band]() -> NoiseBand& { return band ? *band : band.emplace(); };
  if (coarsest > own) widen_band(widened().relative, tolerances(coarsest_, elements_of(record)));
  if (record.kind == SlotKind::kGrad) {
    const auto summands = summands_.find(record.key.scope.value);
    if (summands == summands_.end() || record.stats.count == 0) return;
    const auto rows = static_cast<double>(rows_of(base));
    // What is added one by one rounds as often: by the root of how many there are, in some orders.
    const double terms = static_cast<double>(summands->second.count) / rows;
    const double more = std::clamp(std::sqrt(terms) / kTermsKnown, 1.0, kMostTerms);
    const double error =
        kEpsFactor * more * std::max(own, coarsest) * summands->second.norm / std::sqrt(rows);
    widen_band(widened().absolute, errors(error, record.stats.count));
  } else if (record.kind == SlotKind::kParam) {
    const auto parameter = parameters_.find(parameter_key(record));
    if (parameter == parameters_.end() || !parameter->second.gradient_differs) return;
    if (updated_otherwise(parameter->second, base, cand)) return;
    // A wrong update looks the same: up to there it is suspicious, and no more.
    const double error = drift(parameter->second, base, cand) / kSuspiciousLimit;
    widen_band(widened().absolute, errors(error, record.stats.count));
  }
}

void Rounding::learn(const ValueView& base, const ValueView& cand, const Comparison& comparison) {
  const ValueRecord& record = base.record;
  if (record.kind == SlotKind::kGrad) {
    Parameter& parameter = parameters_[parameter_key(record)];
    parameter.gradient_differs |= comparison.bits_differ;
    if (comparison.bits_differ) taint(parameter, base, cand);
  }
  if (!is_measured(record) || !is_measured(cand.record)) return;
  if (is_rounding(comparison) && epsilon(record.dtype) > epsilon(coarsest_)) {
    coarsest_ = record.dtype;
  }
  if (record.kind == SlotKind::kGradOutput) {
    Summands& summands = summands_[record.key.scope.value];
    summands.norm = std::hypot(summands.norm, std::max(record.stats.l2, cand.record.stats.l2));
    summands.count += record.stats.count;
  } else if (record.kind == SlotKind::kParam) {
    Parameter& parameter = parameters_[parameter_key(record)];
    if (parameter.gradient_differs) {
      parameter.drift = drift(parameter, base, cand);
      ++parameter.updates;
      enlarged_ |= is_rounding(comparison) && compare(base, cand, nullptr).z > kSuspiciousLimit;
    }
    if (parameter.step) move_ = std::max(move_, update(parameter, base, cand));
    parameter.base = samples_of(base);
    parameter.cand = samples_of(cand);
    parameter.step = step_;
  }
}

double Rounding::update(const Parameter& parameter, const ValueView& base, const ValueView& cand) {
  return std::min(largest_move(parameter.base, samples_of(base)),
                  largest_move(parameter.cand, samples_of(cand)));
}

void Rounding::taint(Parameter& parameter, const ValueView& base, const ValueView& cand) {
  const std::vector<double> a = samples_of(base), b = samples_of(cand);
  const size_t count = std::min(a.size(), b.size());
  // What was recorded of the gradient says nothing about samples that it does not have.
  parameter.tainted.resize(std::max(parameter.tainted.size(), count), !is_measured(base.record));
  for (size_t i = 0; i < parameter.tainted.size(); ++i) {
    const bool same = i < count && std::abs(a[i] - b[i]) <= kSameGradient * std::abs(a[i]);
    if (!same) parameter.tainted[i] = true;
  }
}

bool Rounding::updated_otherwise(const Parameter& parameter, const ValueView& base,
                                 const ValueView& cand) const {
  // The weights before the first step are recorded with it.
  const bool one_update =
      parameter.step && (*parameter.step + 1 == step_ || *parameter.step == step_);
  const std::vector<double> a = samples_of(base), b = samples_of(cand);
  const size_t count = std::min(
      {a.size(), b.size(), parameter.base.size(), parameter.cand.size(), parameter.tainted.size()});
  if (!one_update || count == 0) return false;
  const double most = std::max(largest_move(parameter.base, a), largest_move(parameter.cand, b));
  size_t same = 0, otherwise = 0;
  for (size_t i = 0; i < count; ++i) {
    if (parameter.tainted[i]) continue;
    const double own = a[i] - parameter.base[i], other = b[i] - parameter.cand[i];
    const double allowed =
        kSameUpdate * std::max(std::abs(own), std::abs(other)) + kLeastUpdate * most +
        4 * epsilon(base.record.dtype) * std::max(std::abs(a[i]), std::abs(b[i]));
    ++(std::abs(own - other) > allowed ? otherwise : same);
  }
  return otherwise >= kLeastElements && otherwise > same;
}

/// The smaller of both runs' counts: a wrong
/// one must not explain itself. Where all of a gradient is rounding, so is the size of the update:
/// no larger than what others move by.
double Rounding::drift(const Parameter& parameter, const ValueView& base,
                       const ValueView& cand) const {
  double move = update(parameter, base, cand);
  const auto tainted = std::ranges::count(parameter.tainted, true);
  if (2 * tainted > std::ssize(parameter.tainted)) move = std::max(move, move_);
  // Linear at first, which is a sum of odd numbers; like a random walk later.
  const uint32_t updates = std::min(parameter.updates + 1, kMomentum);
  return std::hypot(parameter.drift, kUpdatesApart * move * std::sqrt(2.0 * updates - 1));
}

}  // namespace convtrace::diff

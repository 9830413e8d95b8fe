#include "tools/diff/births/updates.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace convtrace::diff {
namespace {

using format::Sketch;
using Buckets = std::array<double, Sketch::kBuckets>;

constexpr double kNoGain = -1;  ///< the explanation is unknown, or there is none

/// @return the relative difference of an update that its gradient and rounding explain; 0 if the
/// gradient is not known.
double expected_of(std::optional<double> gradient, double rounding) {
  return gradient ? std::sqrt(*gradient) + rounding : 0;
}

Buckets buckets_of(const ValueView& value) {
  const Sketch& sketch = value.record.stats.sketch;
  Buckets buckets;
  for (size_t i = 0; i < buckets.size(); ++i)
    buckets[i] = std::ldexp(static_cast<double>(sketch.bucket[i]), sketch.exponent);
  return buckets;
}

Buckets difference(const Buckets& a, const Buckets& b) {
  Buckets result;
  for (size_t i = 0; i < result.size(); ++i) result[i] = a[i] - b[i];
  return result;
}

double product(const Buckets& a, const Buckets& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

bool is_sketched(const ValueView& a, const ValueView& b) {
  return a.record.stats.sketch.is_known() && b.record.stats.sketch.is_known();
}

bool is_in_pieces(const ValueView& a, const ValueView& b) {
  return (a.record.in_pieces || b.record.in_pieces) && !is_sketched(a, b);
}

/// From two squared norms: the difference of the norms, relative to the larger one.
double apart_in_norm(double a, double b) {
  return a == b ? 0 : 1 - std::sqrt(std::min(a, b) / std::max(a, b));
}

Comparison diverged(double difference, double limit) {
  return {.verdict = Class::kDiverged,
          .field = Field::kUpdate,
          .difference = difference,
          .tolerance = limit,
          .z = difference / limit,
          .bits_differ = true,
          .born = true};
}

}  // namespace

void Updates::Update::add(const Update& other) {
  base += other.base;
  cand += other.cand;
  apart_weight += other.apart_weight;
  apart_weight_norms += other.apart_weight_norms;
  spread += other.spread;
}

void Updates::begin_step() {
  updates_.clear();
  held_back_.clear();
  base_gradients_ = cand_gradients_ = 0;
  moved_ = {};
}

void Updates::begin_with(const ValueView& base, const ValueView& cand) {
  hashes_before_[parameter_key(base.record)] = {base.record.stats.hash, cand.record.stats.hash};
  if (is_in_pieces(base, cand))
    norms_before_[parameter_key(base.record)] = {base.record.stats.l2 - cand.record.stats.l2};
  if (!is_sketched(base, cand)) return;
  before_[parameter_key(base.record)] = {buckets_of(base), buckets_of(cand)};
}

void Updates::take_gradient(const ValueRecord& base, const ValueRecord& cand) {
  if (base.kind == Role::kUnclipped || std::isnan(base.stats.l2 + cand.stats.l2)) return;
  base_gradients_ += base.stats.l2 * base.stats.l2;
  cand_gradients_ += cand.stats.l2 * cand.stats.l2;
}

void Updates::take(uint32_t match, const ValueView& base, const ValueView& cand,
                   std::optional<double> gradient, double unit, bool all_equal) {
  if (is_in_pieces(base, cand))
    take_in_pieces(match, base, cand, gradient, unit);
  else
    find_held_back(match, base, cand, unit, all_equal || gradient == 0.0);
  if (!is_sketched(base, cand)) return;
  Parameter now{buckets_of(base), buckets_of(cand),
                gradient.value_or(0) > limit_of(table_, kUpdating)};
  const auto [entry, is_new] = before_.try_emplace(parameter_key(base.record), now);
  if (is_new) return;
  const Parameter before = entry->second;
  now.had_unlike_gradient |= before.had_unlike_gradient;
  entry->second = now;
  const Buckets in_base = difference(now.base, before.base);
  const Buckets in_cand = difference(now.cand, before.cand);
  const double of_base = product(in_base, in_base), of_cand = product(in_cand, in_cand);
  if (follows_) {
    moved_[0] += of_base;
    moved_[1] += of_cand;
  }
  const Buckets apart = difference(in_cand, in_base);
  const double update = std::max(of_base, of_cand);
  const double weight = product(before.base, before.base);
  const double squared = product(apart, apart);
  // An update below the resolution of f32 is no evidence about the optimizer.
  if (update <= kSketchFloor * kSketchFloor * weight) return;
  // An adaptive optimizer turns a gradient that is only rounding, as that of a bias before a norm,
  // into updates of full size.
  if (now.had_unlike_gradient) return;
  const double expected = expected_of(gradient, unit * std::sqrt(weight / update));
  updates_.push_back({.match = match,
                      .base = of_base,
                      .cand = of_cand,
                      .apart_weight = product(apart, before.base),
                      .apart_weight_norms = std::sqrt(squared * weight),
                      .spread = squared * update,
                      .gain = expected > 0 ? std::sqrt(squared / update) / expected : kNoGain});
}

/// Finds an update that one run has not made: its weight kept every bit, and the other run changed
/// it by more than a layer makes of rounding, although the earlier weights and all sources of the
/// update were equal. Rounding does not explain that.
void Updates::find_held_back(uint32_t match, const ValueView& base, const ValueView& cand,
                             double unit, bool all_equal) {
  const std::array now = {base.record.stats.hash, cand.record.stats.hash};
  const auto [entry, is_new] = hashes_before_.try_emplace(parameter_key(base.record), now);
  const std::array before = std::exchange(entry->second, now);
  const bool is_held = (now[0] == before[0]) != (now[1] == before[1]);
  if (!is_new && is_held && all_equal && before[0] == before[1] &&
      measure(base, cand).rms > kGain * unit)
    hold_back(match);
}

void Updates::hold_back(uint32_t match) {
  Comparison fault = decided(Class::kDiverged, Field::kUpdate);
  fault.born = true;
  held_back_.push_back({match, fault});
}

void Updates::take_in_pieces(uint32_t match, const ValueView& base, const ValueView& cand,
                             std::optional<double> gradient, double unit) {
  if (base.record.held_back != cand.record.held_back) hold_back(match);
  const format::Stats &a = base.record.stats, &b = cand.record.stats;
  Norms now{a.l2 - b.l2, gradient.value_or(0) > limit_of(table_, kUpdating)};
  const auto [entry, is_new] = norms_before_.try_emplace(parameter_key(base.record), now);
  moved_[0] += base.record.moved * base.record.moved;
  moved_[1] += cand.record.moved * cand.record.moved;
  if (is_new) return;
  const Norms before = entry->second;
  now.had_unlike_gradient |= before.had_unlike_gradient;
  entry->second = now;
  const double weight = std::max(a.l2, b.l2);
  const double moved = std::max(base.record.moved, cand.record.moved);
  const double least = std::min(base.record.moved, cand.record.moved);
  if (!(least > kNormError * weight) || now.had_unlike_gradient) return;
  // The norm of a parameter changes by the part of its update that lies in its direction, so the
  // updates are at least as far apart as the norms have parted.
  const double apart = std::max(0.0, std::abs(now.apart - before.apart) - kNormError * weight);
  const double expected = expected_of(gradient, unit * weight / moved);
  updates_.push_back({.match = match,
                      .base = base.record.moved * base.record.moved,
                      .cand = cand.record.moved * cand.record.moved,
                      // Each norm is estimated by itself, with an error of the root of 2 / kBuckets
                      // of its square.
                      .spread = 4 * moved * moved * moved * moved,
                      .gain = expected > 0 ? apart / moved / expected : kNoGain});
}

Updates::Measured Updates::in_norm(const Update& update) const {
  const auto allowed = [&](const BirthRow& row) {
    if (row.against == Against::kNorms)
      return row.limit * apart_in_norm(base_gradients_, cand_gradients_);
    if (row.against == Against::kOne) return row.limit;
    const double chance = std::sqrt(update.spread / static_cast<double>(Sketch::kBuckets));
    return row.limit * chance / std::max(update.base, update.cand);
  };
  return {apart_in_norm(update.base, update.cand),
          limit_of(table_, kUpdateNorms, Field::kUpdate, allowed)};
}

Updates::Measured Updates::along_weights(const Update& update) const {
  return {std::abs(update.apart_weight) / update.apart_weight_norms,
          limit_of(table_, kUpdateCosines)};
}

Updates::Measured Updates::by_gradient(const Update& update) const {
  return {update.gain, limit_of(table_, kUpdateGains)};
}

std::vector<UpdateFault> Updates::beyond(Measure measure, const Measured& together) const {
  std::vector<UpdateFault> all, alone;
  for (const Update& update : updates_) {
    all.push_back({update.match, diverged(together.difference, together.limit)});
    const double difference = (this->*measure)(update).difference;
    if (difference > together.limit)
      alone.push_back({update.match, diverged(difference, together.limit)});
  }
  return alone.empty() ? all : alone;
}

std::vector<UpdateFault> Updates::judge() {
  follows_ = true;
  if (!held_back_.empty()) return held_back_;
  Update sum;
  std::vector<double> gains;
  for (const Update& update : updates_) {
    sum.add(update);
    if (update.gain != kNoGain) gains.push_back(update.gain);
  }
  if (sum.base <= 0 || sum.cand <= 0) return {};
  for (const Measure measure : {&Updates::in_norm, &Updates::along_weights}) {
    const Measured together = (this->*measure)(sum);
    if (together.difference > together.limit) return beyond(measure, together);
  }
  if (gains.empty()) return {};
  const auto middle = gains.begin() + static_cast<ptrdiff_t>(gains.size() / 2);
  std::ranges::nth_element(gains, middle);
  const double limit = limit_of(table_, kUpdateGains);
  return *middle > limit ? beyond(&Updates::by_gradient, {*middle, limit})
                         : std::vector<UpdateFault>{};
}

}  // namespace convtrace::diff

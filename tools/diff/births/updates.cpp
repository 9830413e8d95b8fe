#include "tools/diff/births/updates.h"

#include <algorithm>
#include <cmath>

namespace convtrace::diff {
namespace {

using format::Sketch;
using Buckets = std::array<double, Sketch::kBuckets>;

Buckets buckets_of(const ValueView& value) {
  const Sketch& sketch = value.record.stats.sketch;
  Buckets buckets;
  for (size_t i = 0; i < buckets.size(); ++i) {
    buckets[i] = std::ldexp(static_cast<double>(sketch.bucket[i]), sketch.exponent);
  }
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

void Updates::begin_step() {
  base_base_ = cand_cand_ = apart_apart_ = apart_weight_ = apart_weight_norms_ = 0;
  base_gradients_ = cand_gradients_ = gradients_apart_ = apart_update_spread_ =
      apart_weight_spread_ = 0;
  gains_.clear();
}

void Updates::begin_with(const ValueView& base, const ValueView& cand) {
  if (is_in_pieces(base, cand))
    norms_before_[parameter_key(base.record)] = {base.record.stats.l2 - cand.record.stats.l2};
  if (!is_sketched(base, cand)) return;
  before_[parameter_key(base.record)] = {buckets_of(base), buckets_of(cand)};
}

void Updates::take_gradient(const ValueRecord& base, const ValueRecord& cand, const Apart& apart) {
  if (base.unclipped || std::isnan(apart.size)) return;
  gradients_apart_ += apart.rms * apart.size * apart.rms * apart.size;
  base_gradients_ += base.stats.l2 * base.stats.l2;
  cand_gradients_ += cand.stats.l2 * cand.stats.l2;
}

void Updates::take(const ValueView& base, const ValueView& cand, double gradient, double unit) {
  if (is_in_pieces(base, cand)) take_in_pieces(base, cand, gradient, unit);
  if (!is_sketched(base, cand)) return;
  Parameter now{buckets_of(base), buckets_of(cand), gradient > kUnlikeGradients};
  const auto [entry, is_new] = before_.try_emplace(parameter_key(base.record), now);
  if (is_new) return;
  const Parameter before = entry->second;
  now.had_unlike_gradient |= before.had_unlike_gradient;
  entry->second = now;
  const Buckets in_base = difference(now.base, before.base);
  const Buckets in_cand = difference(now.cand, before.cand);
  const Buckets apart = difference(in_cand, in_base);
  const double update = std::max(product(in_base, in_base), product(in_cand, in_cand));
  const double weight = product(before.base, before.base);
  const double squared = product(apart, apart);
  // An update below the resolution of f32 says nothing about the optimizer.
  if (update <= kSketchFloor * kSketchFloor * weight) return;
  // An adaptive optimizer turns a gradient that is only rounding, as that of a bias before a norm,
  // into updates of full size.
  if (now.had_unlike_gradient) return;
  base_base_ += product(in_base, in_base);
  cand_cand_ += product(in_cand, in_cand);
  apart_apart_ += squared;
  apart_weight_ += product(apart, before.base);
  apart_weight_norms_ += std::sqrt(squared * weight);
  apart_update_spread_ += squared * update;
  apart_weight_spread_ += squared * weight;
  const double expected = std::sqrt(gradient) + unit * std::sqrt(weight / update);
  if (expected > 0) gains_.push_back(std::sqrt(squared / update) / expected);
}

void Updates::take_in_pieces(const ValueView& base, const ValueView& cand, double gradient,
                             double unit) {
  const format::Stats &a = base.record.stats, &b = cand.record.stats;
  Norms now{a.l2 - b.l2, gradient > kUnlikeGradients};
  const auto [entry, is_new] = norms_before_.try_emplace(parameter_key(base.record), now);
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
  base_base_ += base.record.moved * base.record.moved;
  cand_cand_ += cand.record.moved * cand.record.moved;
  apart_apart_ += apart * apart;
  // Each norm is estimated by itself, with an error of the root of 2 / kBuckets of its square.
  apart_update_spread_ += 4 * moved * moved * moved * moved;
  const double expected = std::sqrt(gradient) + unit * weight / moved;
  if (expected > 0) gains_.push_back(apart / moved / expected);
}

std::optional<Comparison> Updates::judge() {
  const double gradients = std::max(base_gradients_, cand_gradients_);
  gradients_were_unlike_ |= gradients_apart_ > kUnlikeGradients * kUnlikeGradients * gradients;
  if (base_base_ <= 0 || cand_cand_ <= 0) return std::nullopt;
  if (apart_apart_ <= 0 && gains_.empty()) return std::nullopt;
  if (gradients_were_unlike_) return std::nullopt;
  const auto by_chance = [](double spread) {
    return kChance * std::sqrt(spread / static_cast<double>(Sketch::kBuckets));
  };
  const double ratio = apart_in_norm(base_base_, cand_cand_);
  const double norm_limit =
      std::max({kUpdateNormLimit, kUpdateNormGain * apart_in_norm(base_gradients_, cand_gradients_),
                by_chance(apart_update_spread_) / std::max(base_base_, cand_cand_)});
  if (ratio > norm_limit) return diverged(ratio, norm_limit);
  const double cosine = std::abs(apart_weight_) / apart_weight_norms_;
  // The cosine by chance of two vectors of few dimensions; for many dimensions it is by_chance()
  // over the norms.
  const double off = by_chance(apart_weight_spread_) / apart_weight_norms_;
  const double limit = std::max(kDecayLimit, off / std::sqrt(1 + off * off));
  if (cosine > limit) return diverged(cosine, limit);
  if (gains_.empty()) return std::nullopt;
  std::vector<double> gains = gains_;
  const auto middle = gains.begin() + static_cast<ptrdiff_t>(gains.size() / 2);
  std::ranges::nth_element(gains, middle);
  if (*middle > kUpdateGain) return diverged(*middle, kUpdateGain);
  return std::nullopt;
}

}  // namespace convtrace::diff

#pragma once
/// @file loss_watch.h
/// Decides whether a loss is a spike: far above the losses before it.
///
/// The two thresholds (an upper limit, and a multiple of the deviation) are those of Ascend's
/// silent-data-corruption check, over a mean and a deviation with slow exponential decay.
///
/// Threads:  one.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "format/settings/setting_values.h"

namespace convtrace::engine {

class LossWatch {
 public:
  /// Number of losses before the deviation is used, and of losses over which the mean decays.
  static constexpr uint32_t kWarmUp = 16;
  static constexpr double kMemory = 64;
  /// Least deviation, as a share of the mean: a loss that hardly moves deviates by rounding alone.
  static constexpr double kLeastPart = 0.01;

  explicit LossWatch(const settings::Spike& limits) : limits_(limits) {}

  /// Takes the loss of a step. @return whether it is a spike; a spike does not change mean and
  /// deviation.
  bool is_spike(double loss) noexcept {
    if (!std::isfinite(loss)) return false;  // reported by the trigger `nan`
    const double deviation = std::max(std::sqrt(variance_), kLeastPart * std::abs(mean_));
    const bool jumped = seen_ >= kWarmUp && loss > mean_ + limits_.sigma * deviation;
    if (jumped || std::abs(loss) > limits_.absolute) return true;
    ++seen_;
    const double weight = 1 / std::min<double>(seen_, kMemory);
    const double step = loss - mean_;
    mean_ += weight * step;
    variance_ = (1 - weight) * (variance_ + weight * step * step);
    return false;
  }

 private:
  settings::Spike limits_;
  uint32_t seen_ = 0;
  double mean_ = 0;
  double variance_ = 0;
};

}  // namespace convtrace::engine

#pragma once
/// @file updates.h
/// What an optimizer did to the parameters in a step, in both runs, and whether that was the same.
///
/// An update is small beside its parameter, and an adaptive optimizer turns gradients that differ
/// by rounding into updates of another sign. So a single parameter says little. All of them
/// together do: sketches are linear, so the sketch of an update is that of the parameter less the
/// one before.
///
/// Place:    births.h.
/// Threads:  not thread-safe.
/// Memory:   two sketches for each parameter.
/// Source:   docs/calibration.md.

#include <array>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tools/diff/compare/compare.h"

namespace convtrace::diff {

/// Norms of all updates of a step: the runs' ratio is 1 but for so much. Measured: 0.013; a
/// learning rate that is 10 % off is 0.1.
inline constexpr double kUpdateNormLimit = 0.05;
/// Cosine of what the updates differ by and the parameters, each weighed by the product of both
/// norms. Measured: 0.78; another weight decay: 1.
inline constexpr double kDecayLimit = 0.85;
/// A scalar product of two sketches that is 0 in truth is a quarter of the product of their norms
/// (one in the root of kBuckets); more than five times that is no chance, in a million steps.
inline constexpr double kChance = 5;
/// How far the norms of all updates are apart, by how far those of all gradients are.
inline constexpr double kUpdateNormGain = 2;
/// Once gradients were further apart nothing follows for updates any more: optimizers remember.
inline constexpr double kUnlikeGradients = 0.5;
/// How far an update is apart, by how far its gradient is. Measured: 2.5 at most.
inline constexpr double kUpdateGain = 4;

class Updates {
 public:
  void begin_step();
  /// Takes a parameter as the program begins with it.
  void begin_with(const ValueView& base, const ValueView& cand);
  /// Takes a gradient as the optimizer is given it.
  void take_gradient(const ValueRecord& base, const ValueRecord& cand, const Apart& apart);
  /// Takes a parameter as a step leaves it. @param gradient  how far its gradient is apart.
  /// @param unit  roundoff of its type
  void take(const ValueView& base, const ValueView& cand, double gradient, double unit);
  /// @return what is wrong with the updates of this step, if something is.
  [[nodiscard]] std::optional<Comparison> judge();

 private:
  using Buckets = std::array<double, format::Sketch::kBuckets>;
  struct Parameter {
    Buckets base, cand;
  };

  std::unordered_map<uint64_t, Parameter> before_;
  bool gradients_were_unlike_ = false;
  // Of this step: sums over parameters of scalar products of updates, of what they differ by, of
  // that and the parameters themselves, and of their norms' products.
  double base_base_ = 0, cand_cand_ = 0;
  double apart_apart_ = 0, apart_weight_ = 0, apart_weight_norms_ = 0;
  /// Squared norms of all gradients, and of what they differ by.
  double base_gradients_ = 0, cand_gradients_ = 0, gradients_apart_ = 0;
  // Sums of products of squared norms: how far the two scalar products of sketches may be off.
  double apart_update_spread_ = 0, apart_weight_spread_ = 0;
  std::vector<double> gains_;
};

}  // namespace convtrace::diff

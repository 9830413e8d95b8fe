#pragma once
/// @file pairs.h
/// scale, for groups of two: finds a pair whose ratio of norms changed, and the member that changed
/// it.
///
/// The usual deviation is that of the ratios from their own means, over all groups of two and
/// earlier steps. The member is named whose norm changed more than the common change of all members
/// of such groups since the step before.
///
/// Place:    scale.cpp.
/// Threads:  one.

#include <cstdint>
#include <map>
#include <vector>

#include "tools/origin/model/origin.h"

namespace convtrace::origin {

// The thresholds of an unusual ratio, in groups of two and in larger ones.
inline constexpr double kSigmas = 6;     ///< least deviation, in units of the usual one
inline constexpr double kFinest = 0.02;  ///< smallest usual deviation of a logarithm
inline constexpr double kLeast = 1.5;    ///< least factor

/// The norms that both members of a group sent in a step.
struct PairStep {
  uint32_t step = 0;
  double own[2] = {0, 0};  ///< means of the logarithms of their norms
  double rms[2] = {0, 0};  ///< norms in the first call
  double spread = 0;       ///< spread of the ratio over the step's calls
  uint32_t calls = 0;
  Origin place{};  ///< the first call
};

/// A member that has sent another norm since a step.
struct PairFound {
  uint32_t group = 0, member = 0;
  size_t at = 0;  ///< in the group's steps
  double log_factor = 0, usual = 0;
  size_t steps = 0;  ///< number of steps with the new norm
};

class Pairs {
 public:
  void add(uint32_t group, PairStep step) { groups_[group].push_back(std::move(step)); }
  [[nodiscard]] const PairStep& at(uint32_t group, size_t step) const {
    return groups_.at(group)[step];
  }
  /// Call after the last step.
  [[nodiscard]] std::vector<PairFound> find() const;

 private:
  std::map<uint32_t, std::vector<PairStep>> groups_;
};

}  // namespace convtrace::origin

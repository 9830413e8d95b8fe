#pragma once
/// @file pairs.h
/// scale, of groups of two: which of two members sends another norm than before.
///
/// What is usual is how far the ratio of the two was from its own mean, over all groups of two and
/// earlier steps. Of the two the one is named whose norm has changed against the change that all
/// members of such groups have made since the step before.
///
/// Place:    scale.cpp.
/// Threads:  one.

#include <cstdint>
#include <map>
#include <vector>

#include "tools/origin/model/origin.h"

namespace convtrace::origin {

// What stands out, in groups of two and in larger ones.
inline constexpr double kSigmas = 6;     ///< beyond what is usual
inline constexpr double kFinest = 0.02;  ///< of a logarithm
inline constexpr double kLeast = 1.5;    ///< a factor

/// What both members of a group sent in a step.
struct PairStep {
  uint32_t step = 0;
  double own[2] = {0, 0};  ///< means of the logarithms of their norms
  double rms[2] = {0, 0};  ///< of the first call
  double spread = 0;       ///< of the ratio over the calls of the step
  uint32_t calls = 0;
  Origin place{};  ///< the first call
};

/// A member that has sent another norm since a step.
struct PairFound {
  uint32_t group = 0, member = 0;
  size_t at = 0;  ///< in the group's steps
  double log_factor = 0, usual = 0;
  size_t steps = 0;  ///< in which it is so
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

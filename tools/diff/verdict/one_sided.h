#pragma once
/// @file one_sided.h
/// Values that one run alone has, of one rank.
///
/// Place:    rank_diff.h adds step after step.
/// Threads:  not thread-safe.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "tools/diff/model/tolerance.h"
#include "tools/diff/verdict/step_pair.h"

namespace convtrace::diff {

class OneSidedValues {
 public:
  /// @param ignored  values that are counted (`waived`) and not listed. Both outlive this.
  OneSidedValues(const PairReporter& reporter, Tolerances& ignored)
      : reporter_(reporter), ignored_(ignored) {}

  void add(const StepPair& pair);

  /// @return those of the steps added so far, and of `pair` those before this match.
  [[nodiscard]] OneSided before(const StepPair& pair, const Match& match) const;

  /// @return at most kMaxOneSided, in the order of their first.
  [[nodiscard]] const std::vector<OneSidedGroup>& groups() const { return groups_; }
  [[nodiscard]] uint64_t waived() const { return waived_; }

 private:
  void list(const StepRecords& step, std::span<const uint32_t> indices, bool in_cand);

  const PairReporter& reporter_;
  Tolerances& ignored_;
  OneSided in_earlier_steps_;
  std::vector<OneSidedGroup> groups_;
  uint64_t waived_ = 0;
  std::unordered_map<uint64_t, size_t> known_;  ///< by a hash of what a group's values share
};

}  // namespace convtrace::diff

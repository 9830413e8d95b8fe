#pragma once
/// @file one_sided.h
/// Collects the values of one rank that only one run has.
///
/// Place:    rank_diff.h adds the values of each step.
/// Threads:  not thread-safe.

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "tools/diff/verdict/step_pair.h"
#include "tools/trace/names/tolerance.h"

namespace convtrace::diff {

class OneSidedValues {
 public:
  /// @param ignored  matches values that are counted (`waived`) and not listed. Both outlive this.
  OneSidedValues(const PairReporter& reporter, Tolerances& ignored)
      : reporter_(reporter), ignored_(ignored) {}

  void add(const StepPair& pair);

  /// @return those of all steps added so far, and those of `pair` before this match.
  [[nodiscard]] OneSided before(const StepPair& pair, const Match& match) const;

  /// @return at most kMaxOneSided groups, ordered by their first values.
  [[nodiscard]] const std::vector<OneSidedGroup>& groups() const { return groups_; }
  [[nodiscard]] uint64_t waived() const { return waived_; }

 private:
  void list(const StepRecords& step, std::span<const uint32_t> indices, bool in_cand);

  const PairReporter& reporter_;
  Tolerances& ignored_;
  OneSided in_earlier_steps_;
  std::vector<OneSidedGroup> groups_;
  uint64_t waived_ = 0;
  /// By a hash of the fields that the values of a group share.
  std::unordered_map<uint64_t, size_t> known_;
};

}  // namespace convtrace::diff

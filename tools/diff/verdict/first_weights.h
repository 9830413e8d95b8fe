#pragma once
/// @file first_weights.h
/// Weights of a resumed run before its first step, and those that the other run has at that point.
///
/// A resumed run records its weights before its first step; the other run recorded the same weights
/// after the previous update. Neither is a record of the first common step.
///
/// Place:    rank_diff.h, one of each rank.
/// Memory:   hashes of the first weights, and of the present ones.
/// Threads:  not thread-safe.

#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "tools/diff/births/last_weights.h"
#include "tools/diff/verdict/root.h"

namespace convtrace::diff {

class FirstWeights {
 public:
  /// @param pair  the first common step.
  /// @param last  the weights before it.
  /// @param root  found in it.
  /// @return the weights before the step as the root, if they differ by so much that `root`
  /// follows.
  [[nodiscard]] static std::optional<RootReport> explain(const StepPair& pair,
                                                         const LastWeights& last,
                                                         const RootReport& root,
                                                         const PairReporter& reporter);

  /// @return whether the runs begin with equal weights; nullopt if one does not show them.
  /// @param base, cand  their first steps; null if there is none
  [[nodiscard]] static std::optional<bool> begin_alike(const StepRecords* base,
                                                       const StepRecords* cand);

  /// @return whether the first steps have data in common, and these are equal.
  [[nodiscard]] static bool take_same_data(const StepRecords* base, const StepRecords* cand);

  /// Takes a common step. The first one shows the weights that both runs begin with.
  /// @return the candidate's step numbers minus the baseline's, if the first weights of one run are
  /// all those of the other one after this step, and not those that it began with.
  [[nodiscard]] std::optional<int64_t> offset_at(const StepRecords& base, const StepRecords& cand);

 private:
  using Hashes = std::unordered_map<uint64_t, uint64_t>;  ///< hashes by parameter_key()

  std::array<Hashes, 2> first_, now_;  ///< by Side; now_: after the last step taken
  std::optional<uint32_t> first_step_;
};

}  // namespace convtrace::diff

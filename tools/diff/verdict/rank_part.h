#pragma once
/// @file rank_part.h
/// The result of comparing one rank's two traces, before the ranks are joined.
///
/// Place:     rank_diff.h and ranks/diff.cpp make them, ranks/joined.h joins them.
/// Threads:   plain values.

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "tools/diff/facts/facts.h"
#include "tools/diff/verdict/result.h"
#include "tools/trace/model/replicas.h"

namespace convtrace::diff {

struct RankPart {
  uint32_t rank = 0;
  DiffResult result;  ///< this rank's result, without the fields decided over all ranks
  /// All values, and those of modules alone: a compiled run, or one that records ops, has further
  /// values.
  Aligned aligned{}, aligned_of_modules{};
  std::optional<uint32_t> uncompared_step{};  ///< the first in which no value could be compared
  std::optional<uint32_t> last_base_step{}, last_cand_step{};
  bool ends_in_evaluation = false;  ///< the last of the steps trains nothing
  /// Number of steps before the last step of the other run, which does not have them.
  std::array<uint64_t, 2> skipped_steps{};  ///< by Side: the run that has them
  /// Values in pieces that are known only by their hashes, without inputs, whose fault outputs
  /// show.
  uint64_t hashes_of_pieces = 0;
  std::vector<ReplicaSums> base_replica{}, cand_replica{};
  FactState facts{};
};

}  // namespace convtrace::diff

#pragma once
/// @file replicas.h
/// Tests whether the data-parallel ranks of one run still have the same weights.
///
/// Ranks that agree in the first step that both have are replicas. Ranks that never agreed hold
/// shards or do other work, and are ignored. A replica that stops agreeing has lost its
/// synchronisation; no second run is needed to see that.
///
/// Place:    diff.h adds the steps that rank_diff.h reads.
/// Memory:   24 bytes a step, for one rank of each group.

#include <cstdint>
#include <vector>

#include "tools/trace/model/record.h"

namespace convtrace::diff {

/// Sums over the tensors that replicas share, independent of order and of the process that makes
/// them. 0 if nothing was recorded.
struct ReplicaSums {
  uint32_t step = 0;
  uint64_t weights = 0;    ///< after the optimizer's step
  uint64_t gradients = 0;  ///< before the optimizer's step
};
/// @param names  of the records.
[[nodiscard]] ReplicaSums replica_sums(const StepRecords& step, const format::Definitions& names);

/// The step in which a rank stops agreeing with its group.
struct ReplicaParting {
  bool in_cand = false;
  uint32_t rank = 0, other = 0;  ///< `other` is the group's first rank
  uint32_t step = 0;
  bool in_gradients = false;  ///< the gradients of that step differ, too
  bool operator==(const ReplicaParting&) const = default;
};

class ReplicaCheck {
 public:
  /// Adds all steps of a rank, ascending. @return where it stops agreeing with ranks added before.
  [[nodiscard]] std::vector<ReplicaParting> add(uint32_t rank, std::vector<ReplicaSums> steps);

 private:
  struct Group {
    uint32_t rank;
    std::vector<ReplicaSums> steps;
  };
  std::vector<Group> groups_;
};

}  // namespace convtrace::diff

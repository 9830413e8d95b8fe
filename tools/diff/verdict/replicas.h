#pragma once
/// @file replicas.h
/// Do data-parallel ranks of one run still hold the same weights?
///
/// Ranks that agree in the first step that both have are replicas; ranks that never agreed hold
/// shards or work on something else, and are let alone. A replica that parts later has lost its
/// synchronisation, which no comparison with another run is needed for.
///
/// Place:    diff.h feeds it what rank_diff.h reads.
/// Memory:   24 bytes per step of one rank of each group.

#include <cstdint>
#include <vector>

#include "tools/diff/model/record.h"

namespace convtrace::diff {

/// Sums over what replicas have in common, independent of order. 0 if nothing was recorded.
struct ReplicaSums {
  uint32_t step = 0;
  uint64_t weights = 0;    ///< as the optimizer left them
  uint64_t gradients = 0;  ///< as the optimizer took them
};
[[nodiscard]] ReplicaSums replica_sums(const StepRecords& step);

/// Where a rank parts from the others of its group.
struct ReplicaParting {
  bool in_cand = false;
  uint32_t rank = 0, other = 0;  ///< `other` is the group's first rank
  uint32_t step = 0;
  bool in_gradients = false;  ///< already in the gradients of that step
  bool operator==(const ReplicaParting&) const = default;
};

class ReplicaCheck {
 public:
  /// Takes a whole rank, its steps ascending. @return where it parts from a rank that came before.
  [[nodiscard]] std::vector<ReplicaParting> add(uint32_t rank, std::vector<ReplicaSums> steps);

 private:
  struct Group {
    uint32_t rank;
    std::vector<ReplicaSums> steps;
  };
  std::vector<Group> groups_;
};

}  // namespace convtrace::diff

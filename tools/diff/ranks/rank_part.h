#pragma once
/// @file rank_part.h
/// The result of comparing one rank's two traces, before the ranks are joined.
///
/// Place:     diff.cpp makes them, here or in another process (part_file.h); joined.h joins them.
/// Threads:   plain values.

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
  Aligned aligned{}, aligned_of_modules{};
  std::optional<uint32_t> uncompared_step{};  ///< the first in which no value could be compared
  std::vector<ReplicaSums> base_replica{}, cand_replica{};
  FactState facts{};
};

}  // namespace convtrace::diff

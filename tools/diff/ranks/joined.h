#pragma once
/// @file joined.h
/// Joins the results of all ranks to the result of a diff, and decides the verdict.
///
/// Threads:   one.
/// Source:    docs/comparison.md "Verdict".

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/diff/facts/facts.h"
#include "tools/diff/verdict/rank_part.h"
#include "tools/diff/verdict/result.h"
#include "tools/trace/model/replicas.h"
#include "tools/trace/read/trace_set.h"

namespace convtrace::diff {

/// Adds findings of a rank of a run, up to kMaxFindings.
/// @param rank  of the pair, if it is not theirs: two single traces are compared whatever their
/// ranks.
void add_findings(Findings& all, const Findings& more, std::optional<uint32_t> rank = {});

class Joined {
 public:
  /// @param base, @param cand, @param pairs  outlive this, as `result` does.
  Joined(const TraceSet& base, const TraceSet& cand, std::span<const RankPair> pairs,
         DiffResult& result)
      : base_(base), cand_(cand), pairs_(pairs), result_(result) {}

  /// Adds a rank. Ranks come in the order of the pairs.
  void add(RankPart part);
  /// Decides, when all ranks were added. @param allow_incomplete  see DiffInputs.
  void decide(bool allow_incomplete);

 private:
  void add_counts(const RankPart& part);
  void add_lists(DiffResult& one);
  void add_replicas(std::vector<ReplicaParting> partings, bool in_cand);
  void mark_receivers();
  void find_cause();
  [[nodiscard]] bool has_entry(std::string_view name) const;
  [[nodiscard]] std::string why_not_comparable() const;
  [[nodiscard]] const format::TraceMeta& meta_of(uint32_t rank, bool in_cand) const;

  const TraceSet& base_;
  const TraceSet& cand_;
  std::span<const RankPair> pairs_;
  DiffResult& result_;
  ReplicaCheck base_replicas_, cand_replicas_;
  FactDiff facts_;
  Aligned aligned_, aligned_of_modules_;
  std::optional<uint32_t> uncompared_step_;
};

}  // namespace convtrace::diff

#pragma once
/// @file step_pair.h
/// One step of both runs: the matches of its values and their comparisons.
///
/// Place:    rank_diff.h makes one for each step and fills in the comparisons.
/// Memory:   borrows the steps.
/// Threads:  plain values.

#include <vector>

#include "tools/diff/align/align.h"
#include "tools/diff/align/lineage.h"
#include "tools/diff/align/other_ops.h"
#include "tools/diff/compare/compare.h"
#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

struct StepPair {
  const StepRecords& base;
  const StepRecords& cand;
  Alignment alignment;
  Lineage lineage;
  std::vector<Comparison> comparisons{};  ///< one per match

  [[nodiscard]] const ValueRecord& base_of(uint32_t match) const {
    return base.values[alignment.matches[match].base];
  }
  [[nodiscard]] const ValueRecord& cand_of(uint32_t match) const {
    return cand.values[alignment.matches[match].cand];
  }
  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(comparisons.size()); }
};

/// Applies the rules that need all comparisons of the step, in passes. The first pass drops matches
/// that were guessed and whose values differ, because all later passes are about partners.
/// @pre every match is compared.
void settle(StepPair& pair);

/// Turns the records of a rank's pairs, which borrow data and use ids, into reports that own their
/// texts.
class PairReporter {
 public:
  /// @param names  of both streams; outlives this.
  PairReporter(const format::Definitions& names, uint32_t rank) : names_(names), rank_(rank) {}

  [[nodiscard]] RecordReport of_match(const StepPair& pair, uint32_t match) const;
  /// @param index  of a value that only one run has.
  [[nodiscard]] RecordReport of_one(const StepRecords& step, uint32_t index, bool in_base) const;
  [[nodiscard]] RewrittenModule of_ops(const OtherOps& call) const;
  [[nodiscard]] std::string text(format::StringId id) const { return std::string(names_.text(id)); }
  [[nodiscard]] uint32_t rank() const { return rank_; }
  [[nodiscard]] const format::Definitions& names() const { return names_; }

 private:
  const format::Definitions& names_;
  uint32_t rank_;
};

}  // namespace convtrace::diff

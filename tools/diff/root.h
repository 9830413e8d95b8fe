#pragma once
/// @file root.h
/// Decides which record of a step is where two runs part: not the loudest, not every victim after
/// it, but the first whose own inputs still agreed.
///
/// Place:    rank_diff.h, once per step, in ascending steps.
/// Source:   docs/design.md "The diff", lineage and verdict.

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "format/definitions.h"
#include "tools/diff/compare.h"
#include "tools/diff/lineage.h"

namespace convtrace::diff {

struct RootChoice {
  uint32_t match = 0;  ///< index into Alignment::matches
  /// For changed-between: `match` is the producer.
  std::optional<ChangedBetween> changed;
  /// Beyond kWithinNoise when no divergent record of the step had agreeing inputs; then this is
  /// the first divergent one.
  Class worst_input = Class::kIdentical;
};

class RootFinder {
 public:
  /// @param names  texts of the records' ids; must outlive this.
  explicit RootFinder(const format::Definitions& names) : names_(names) {}

  /// @param base        the step's records; slots and places are equal in both runs.
  /// @param comparisons one per match; consumers in `lineage.changed` already are kChangedBetween.
  [[nodiscard]] std::optional<RootChoice> examine(const StepRecords& base,
                                                  const Alignment& alignment,
                                                  const std::vector<Comparison>& comparisons,
                                                  const Lineage& lineage);
  /// A step all of whose values agree bit by bit, parameters among them.
  void take_equal_step() { parameters_.clear(); }

 private:
  const format::Definitions& names_;
  /// Class of every parameter as last recorded, by (scope, name): an input of the following step.
  std::unordered_map<uint64_t, Class> parameters_;
};

}  // namespace convtrace::diff

#pragma once
/// @file equal_steps.h
/// What two traces need not be read for: their sums say of which steps both hold the same launches
/// and values, and of which others the same launches.
///
/// Place:    rank_diff.h counts those steps as they are; step_stream.h leaves them unread.
/// Threads:  plain values.
/// Source:   reader/step_sums.h.

#include <optional>
#include <span>
#include <vector>

#include "format/layout.h"
#include "format/step_sums.h"
#include "reader/kind_set.h"
#include "reader/trace_reader.h"

namespace convtrace::diff {

class EqualSteps {
 public:
  /// Nothing is known to be equal.
  EqualSteps() = default;
  /// Nothing either where the sums cannot be relied on: of a damaged trace, or where values or
  /// launches of no known step lie between.
  /// @param every_value  equal values are to be read all the same.
  EqualSteps(const reader::TraceReader& base, const reader::TraceReader& cand, bool every_value);

  /// Of the steps that are the same, ascending.
  [[nodiscard]] std::span<const format::StepSums> same() const { return same_; }
  [[nodiscard]] bool is_same(uint32_t step) const;
  /// @return the number of launches of a step whose launches are the same, but not its values.
  [[nodiscard]] std::optional<uint64_t> same_launches(uint32_t step) const;

  /// @return what of a chunk tells more than this, by its header. Findings that are errors are
  /// always wanted; others, and losses, are not looked for in chunks of equal steps.
  [[nodiscard]] reader::KindSet wanted(const format::RecordHeader& chunk) const;

 private:
  bool known_ = false;
  std::vector<format::StepSums> same_, same_launches_;
  std::vector<uint32_t> with_values_, with_launches_;  ///< steps to be read, ascending
};

}  // namespace convtrace::diff

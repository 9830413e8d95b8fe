#pragma once
/// @file equal_steps.h
/// Finds the steps that need not be decoded: the sums in both traces say which steps have equal
/// launches and values, and which have equal launches alone. The checksums of their chunks are
/// verified all the same: a damaged trace is no agreement.
///
/// Place:    rank_diff.h counts those steps as they are; step_stream.h leaves them unread.
/// Threads:  plain values.
/// Source:   reader/step_sums.h.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "format/file/columns/step_sums.h"
#include "format/file/layout.h"
#include "reader/kind_set.h"
#include "reader/trace_reader.h"
#include "tools/diff/model/step_offset.h"

namespace convtrace::diff {

enum class Side : uint8_t { kBase, kCand };

class EqualSteps {
 public:
  /// Nothing is known to be equal.
  EqualSteps() = default;
  /// Nothing either where the sums cannot be relied on: of a damaged trace, or where values or
  /// launches of no known step lie between.
  /// @param every_value  equal values are wanted too: the baseline's are read, and stand for both.
  /// So are those of an equal step in front of another one, which says where parameters come from.
  /// @param offset  of the candidate's steps; all numbers here are as it shifts them.
  EqualSteps(const reader::TraceReader& base, const reader::TraceReader& cand, bool every_value,
             const StepOffset& offset = {});

  /// Of the steps that are the same and read in neither trace, ascending.
  [[nodiscard]] std::span<const format::StepSums> unread() const { return unread_; }
  /// Whether a step is the same and its values are read in the baseline.
  [[nodiscard]] bool is_read_once(uint32_t step) const;
  /// @return the number of launches of a step whose launches are the same, and not read.
  [[nodiscard]] std::optional<uint64_t> same_launches(uint32_t step) const;

  /// @return which of values and launches of a step are to be taken from a trace.
  [[nodiscard]] reader::KindSet taken(uint32_t step, Side side) const;
  /// @return what is to be read of a chunk, by its header. Findings and losses are, whatever they
  /// lie between.
  [[nodiscard]] reader::KindSet wanted(const format::RecordHeader& chunk, Side side) const;

 private:
  bool known_ = false;
  std::vector<format::StepSums> unread_, same_launches_;
  std::vector<uint32_t> read_once_;
  // Steps to be read, ascending.
  std::vector<uint32_t> with_launches_;
  std::array<std::vector<uint32_t>, 2> with_values_;  ///< by Side
};

}  // namespace convtrace::diff

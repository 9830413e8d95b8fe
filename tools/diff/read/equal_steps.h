#pragma once
/// @file equal_steps.h
/// Finds steps that need not be decoded: the step sums in both traces show which steps have equal
/// launches and values, and which have equal launches only. The checksums of their chunks are
/// verified nevertheless, since a damaged trace is no agreement.
///
/// Place:    rank_diff.h counts these steps as equal; step_stream.h skips them.
/// Threads:  plain values.
/// Source:   reader/step_sums.h.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
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
  /// No step is known to be equal.
  EqualSteps() = default;
  /// No step is known to be equal either if the sums are not reliable: in a damaged trace, or if
  /// values or launches without a known step lie between.
  /// @param every_value  equal values are wanted, too: those of the baseline are read and stand for
  /// both runs. They are also read in the two equal steps before one that differs, because they
  /// show the sources of parameters and the gradients of two networks that are trained in turn, and
  /// then in the first step, which alone has parameters that are not trained.
  /// @param offset  of the candidate's steps; all step numbers here are shifted by it.
  EqualSteps(const reader::TraceReader& base, const reader::TraceReader& cand, bool every_value,
             const StepOffset& offset = {});

  /// @return the sums of the equal steps that are read in neither trace, ascending.
  [[nodiscard]] std::span<const format::StepSums> unread() const { return unread_; }
  /// @return whether a step is equal and its values are read in the baseline.
  [[nodiscard]] bool is_read_once(uint32_t step) const;
  /// @return the number of launches of a step whose launches are equal and not read.
  [[nodiscard]] std::optional<uint64_t> same_launches(uint32_t step) const;

  /// @return which of a step's values and launches are to be taken from a trace.
  [[nodiscard]] reader::KindSet taken(uint32_t step, Side side) const;
  /// @return the kinds of events to read from a chunk, by its header. Findings and losses are
  /// always read.
  [[nodiscard]] reader::KindSet wanted(const format::RecordHeader& chunk, Side side) const;

 private:
  bool known_ = false;
  std::vector<format::StepSums> unread_, same_launches_;
  std::vector<uint32_t> read_once_;
  // Steps to be read, ascending.
  std::vector<uint32_t> with_launches_;
  std::array<std::vector<uint32_t>, 2> with_values_;  ///< by Side
};

/// Tests whether a repetition of a run has the same bits. Only values count: facts differ between runs
/// that repeat, since a random generator that is neither seeded nor used has another state in each.
/// Steps with equal sums are not read, of other steps only the values.
/// @param run, repetition  paths of traces.
/// @return true if all values of all steps have equal bits in the repetition, false if some have
/// not; nullopt if it is not known, because steps are missing, damaged or cut.
[[nodiscard]] std::optional<bool> repeats(const std::string& run, const std::string& repetition);

}  // namespace convtrace::diff

#pragma once
/// @file shown_causes.h
/// The causes that values alone show: gradients, first weights, data.
///
/// Place:    rank_diff.h, one of each rank.
/// Threads:  not thread-safe.

#include <optional>
#include <span>
#include <string>

#include "tools/diff/shown/gradients.h"
#include "tools/diff/shown/moved_data.h"

namespace convtrace::diff {

class ShownCauses {
 public:
  /// Takes a step of one run, the candidate's after the baseline's. Call begin() before the root's.
  void take(const StepRecords& step, bool in_base);
  /// Sets the root of a step. @param what  the root in words.
  void begin(const StepRecords& base, const StepRecords& cand, std::span<const Match> matches,
             const Match& root, std::string what);
  /// Call it after the last step.
  [[nodiscard]] std::optional<ShownCause> cause() const;

 private:
  Gradients gradients_;
  MovedData data_;
  std::optional<ShownCause> at_root_;
  bool begun_ = false;
};

}  // namespace convtrace::diff

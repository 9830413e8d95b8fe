#pragma once
/// @file diff.h
/// The whole comparison of two runs, from paths to a DiffResult.
///
/// Source:   docs/comparison.md.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "format/settings/step_set.h"
#include "tools/diff/verdict/rank_diff.h"
#include "tools/diff/verdict/result.h"
#include "tools/trace/read/trace_set.h"

namespace convtrace::diff {

/// Each is a trace or a folder of traces.
struct DiffInputs {
  std::string base, cand;
  std::vector<std::string> noise{};  ///< other runs of the baseline
  DiffRules rules{};
  std::span<const BirthRow> table = kBirthRows;  ///< the limits of rounding
  /// Ranks of which every value is read, so that they are compared with each other. Of the others
  /// a step is not read whose sums are equal in both runs. One verdict either way.
  settings::StepSet ranks{};
  /// The verdict is that of the compared parts, even if the runs are incomplete.
  bool allow_incomplete = false;
  /// Called now and then with the number of records read, and of all records; may be empty.
  std::function<void(uint64_t done, uint64_t total)> on_progress{};
};

/// Least share of the shorter run's values that must have a partner. Below it the runs are of
/// different programs and not comparable.
inline constexpr double kLeastAligned = 0.5;

/// The traces of the two runs of a comparison.
struct Runs {
  TraceSet base, cand;
};

/// @param rows may be null.
/// @param runs  gets the traces that were compared; may be null.
/// @param error one line, escaped.
/// @return false if an input cannot be read: `error` names it, with the reason.
[[nodiscard]] bool run_diff(const DiffInputs& inputs, RowSink* rows, DiffResult& result,
                            std::string& error, Runs* runs = nullptr);

}  // namespace convtrace::diff

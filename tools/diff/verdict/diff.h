#pragma once
/// @file diff.h
/// The whole comparison of two runs, from paths to a DiffResult.
///
/// Source: docs/comparison.md.

#include <functional>
#include <string>
#include <vector>

#include "tools/diff/verdict/rank_diff.h"
#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// Each is a trace or a folder of traces.
struct DiffInputs {
  std::string base, cand;
  std::vector<std::string> noise{};  ///< other runs of the baseline
  DiffRules rules{};
  bool allow_incomplete = false;  ///< what was compared decides, even if it is not all
  /// Told from time to time how many of how many records were read; may be empty.
  std::function<void(uint64_t done, uint64_t total)> on_progress{};
};

/// Below this part of the shorter side's values aligned, the runs are not the same program.
inline constexpr double kLeastAligned = 0.5;

/// @param rows may be null.
/// @param error one line, escaped.
/// @return false when an input cannot be read: `error` says which and why.
[[nodiscard]] bool run_diff(const DiffInputs& inputs, RowSink* rows, DiffResult& result,
                            std::string& error);

}  // namespace convtrace::diff

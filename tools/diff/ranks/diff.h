#pragma once
/// @file diff.h
/// The whole comparison of two runs, from paths to a DiffResult.
///
/// Source:   docs/comparison.md.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/diff/ranks/rank_part.h"
#include "tools/diff/verdict/rank_diff.h"
#include "tools/diff/verdict/result.h"
#include "tools/trace/read/trace_set.h"

namespace convtrace::diff {

/// Each is a trace or a folder of traces.
struct DiffInputs {
  std::string base, cand;
  std::vector<std::string> noise{};  ///< other runs of the baseline
  DiffRules rules{};
  /// The verdict is that of the compared parts, even if the runs are incomplete.
  bool allow_incomplete = false;
  /// Called now and then with the number of records read, and of all records; may be empty.
  std::function<void(uint64_t done, uint64_t total)> on_progress{};
};

/// Least share of the shorter run's values that must have a partner. Below it the runs are of
/// different programs and not comparable.
inline constexpr double kLeastAligned = 0.5;

/// @param rows may be null.
/// @param error one line, escaped.
/// @return false if an input cannot be read: `error` names it, with the reason.
[[nodiscard]] bool run_diff(const DiffInputs& inputs, RowSink* rows, DiffResult& result,
                            std::string& error);

/// @return whether two runs are compared as wholes, not rank by rank: they divide their tensors or
/// their data among ranks differently, and every rank of both has a trace.
/// @param placed_unlike  called at most once, for the first traces of both: facts/layouts.h.
[[nodiscard]] bool are_wholes(const TraceSet& base, const TraceSet& cand, const DiffRules& rules,
                              const std::function<bool()>& placed_unlike);

/// Compares one pair of the traces of a job, in a process of its own.
/// @param inputs  base and cand are a trace each. @param of_several  the job has more pairs.
/// @param part  has the rank; gets the results. @return as run_diff.
[[nodiscard]] bool compare_pair(const DiffInputs& inputs, bool of_several, RankPart& part,
                                std::string& error);

/// Joins the results of compare_pair().
/// @param parts  of the pairs of pair_ranks() that both runs have, in their order; nullopt: failed.
void join_parts(const DiffInputs& inputs, const TraceSet& base, const TraceSet& cand,
                std::span<std::optional<RankPart>> parts, DiffResult& result);

}  // namespace convtrace::diff

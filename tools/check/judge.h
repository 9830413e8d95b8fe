#pragma once
/// @file judge.h
/// Reads one trace and lets the checks see it, step by step.
///
/// Results of a GPU arrive after the events that follow them, so a step is judged when the trace is
/// three steps further.
///
/// Threads:  one.
/// Memory:   three steps of values.
/// Errors:   damage makes a result that is not complete.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reader/trace_reader.h"
#include "tools/check/model/finding.h"
#include "tools/check/model/step_values.h"
#include "tools/check/model/story.h"
#include "tools/trace/model/losses.h"
#include "tools/trace/model/replicas.h"

namespace convtrace::check {

/// The data of one step that are compared between ranks.
struct RankStep {
  diff::ReplicaSums sums{};
  uint64_t data = 0;  ///< 0: none, or a constant
};

struct RankResult {
  std::string path;
  uint32_t rank = 0;
  uint64_t start_realtime_ns = 0;
  Story story;
  std::vector<Finding> findings;
  std::vector<std::pair<std::string_view, uint64_t>> looks;
  uint64_t initial = 0;         ///< sum over the weights before the first step; 0: not recorded
  std::vector<RankStep> steps;  ///< the steps that train
  uint64_t late_values = 0;     ///< values that arrived after their steps were judged
  std::optional<uint32_t> parallel_from;  ///< the step in which threads train at once; not judged
  uint64_t values = 0, steps_seen = 0, steps_trained = 0;
  bool complete = true;  ///< closed and undamaged
  diff::Losses losses;
};

class TraceJudge {
 public:
  /// @param wanted  which ids are reported; outlives the judge.
  TraceJudge(std::string path, std::unique_ptr<reader::TraceReader> trace,
             const std::function<bool(std::string_view)>& wanted);
  ~TraceJudge();

  /// Judges the steps that can be read whole. @return the new findings.
  std::vector<Finding> read_on();
  /// Judges the rest. Call once, after the last read_on().
  [[nodiscard]] RankResult finish();
  [[nodiscard]] reader::TraceReader& trace();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Runs the checks that compare ranks: replicas-parted, same-data.
/// @param[in,out] looks  gets the number of judgements of each.
[[nodiscard]] std::vector<Finding> judge_ranks(
    const std::vector<RankResult>& ranks,
    std::vector<std::pair<std::string_view, uint64_t>>& looks);

}  // namespace convtrace::check

#pragma once
/// @file coverage.h
/// Records which parts of two runs were not compared, and why: a gap is no agreement.
///
/// Place:    diff.cpp, while it compares the ranks.
/// Threads:  one owner thread.
/// Source:   docs/comparison.md "Verdict".

#include <span>

#include "tools/diff/read/step_stream.h"
#include "tools/diff/verdict/rank_part.h"
#include "tools/diff/verdict/result.h"
#include "tools/diff/whole/whole_runs.h"
#include "tools/trace/read/trace_set.h"

namespace convtrace::diff {

class Coverage {
 public:
  /// Records files that cannot be read and ranks that neither run has.
  /// @param base, @param cand  outlive this, as `result` does.
  /// @param result  gets preflight entries, reasons for kIncomplete, and values that were not read.
  Coverage(const TraceSet& base, const TraceSet& cand, std::span<const RankPair> pairs,
           DiffResult& result);

  /// Records a rank of which only one run has a trace.
  void add_one_sided(const RankPair& pair);

 private:
  void add_absent_ranks(std::span<const RankPair> pairs);

  const TraceSet& base_;
  const TraceSet& cand_;
  DiffResult& result_;
};

/// Records the gaps in the traces of a rank, which are known only after they were read.
/// @param of_several  the runs have more ranks.
void add_gaps(bool of_several, const StepStream& base, const StepStream& cand, RankPart& part);

/// Records the gaps in the traces of all ranks of two runs that were put together.
/// @param base_set, cand_set  the traces of the streams. @param part  has `wholes`.
void add_gaps_of_wholes(const TraceSet& base_set, const TraceSet& cand_set, const Streams& base,
                        const Streams& cand, const WholeRuns& runs, RankPart& part);

}  // namespace convtrace::diff

#pragma once
/// @file last_weights.h
/// The last record of each parameter of both runs: what a parameter was before a step, in which it
/// may have no record.
///
/// Place:    rank_diff.h, once for each step up to its root.
/// Memory:   a record for each parameter of each run.
/// Threads:  not thread-safe.

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tools/diff/compare/compare.h"

namespace convtrace::diff {

/// Adds a copy of a value to a step.
ValueRecord& append(StepRecords& step, const ValueView& value);

class LastWeights {
 public:
  struct Held {
    ValueRecord record;
    uint32_t step = 0;
    std::vector<uint64_t> shape;
    std::vector<std::byte> samples;

    [[nodiscard]] ValueView view() const { return {record, shape, samples}; }
  };

  /// Notes the parameters of a step. Call it once its root was looked for.
  void take(const StepRecords& step, bool in_base);

  /// @return the last record of the parameter, by parameter_key(); null if there is none.
  [[nodiscard]] const Held* find(bool in_base, uint64_t parameter) const;

 private:
  using Parameters = std::unordered_map<uint64_t, Held>;
  Parameters base_, cand_;
};

}  // namespace convtrace::diff

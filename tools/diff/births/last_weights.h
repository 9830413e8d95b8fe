#pragma once
/// @file last_weights.h
/// The last record of each parameter of both runs: its value before a step that may not record it.
/// Also keeps whether the earlier steps showed changes and gradients.
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

  /// Takes the parameters of a step. Call it after the search for the step's root.
  void take(const StepRecords& step, bool in_base);

  struct OfRun {
    std::unordered_map<uint64_t, Held> parameters;  ///< by parameter_key()
    bool moves = false;                             ///< a parameter has changed
    bool has_gradients = false;                     ///< the optimizer's gradients were recorded
  };
  [[nodiscard]] const OfRun& of(bool in_base) const { return in_base ? base_ : cand_; }

  /// @return the last record of the parameter, by parameter_key(); null if there is none.
  [[nodiscard]] const Held* find(bool in_base, uint64_t parameter) const;

  /// @return whether a run, `step` included, updates parameters by gradients that are not recorded,
  /// as a compiled optimizer step does.
  [[nodiscard]] bool moves_unseen(const StepRecords& step, bool in_base) const;

 private:
  OfRun base_, cand_;
};

}  // namespace convtrace::diff

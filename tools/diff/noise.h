#pragma once
/// @file noise.h
/// What the baseline differs by from its own repetitions: a difference of that size means nothing.
///
/// One repetition says little about one value (its mean may agree by chance), so the largest
/// relative difference seen so far in the value's family (same place, op and slot, any call and
/// step) counts as well.
///
/// Place:    rank_diff.h feeds it step by step, before the step is compared.
/// Memory:   bands of single values are kept for one step, those of families for the whole run.

#include <unordered_map>

#include "tools/diff/compare.h"

namespace convtrace::diff {

class NoiseModel {
 public:
  /// Forgets the bands of single values.
  void begin_step() { values_.clear(); }
  /// @param repetition the same value in another run of the baseline.
  void learn(const ValueView& base, const ValueView& repetition);
  [[nodiscard]] NoiseBand band(const RecordKey& key) const;

 private:
  std::unordered_map<RecordKey, NoiseBand, KeyHash> values_;
  std::unordered_map<RecordKey, NoiseBand, KeyHash> families_;
};

}  // namespace convtrace::diff

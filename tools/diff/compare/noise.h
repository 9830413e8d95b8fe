#pragma once
/// @file noise.h
/// Measures by how much repetitions of the baseline differ from it. A difference of that size is
/// noise.
///
/// One repetition says little about one value (its mean may agree by chance). So the largest
/// relative difference seen so far counts as well, in values like it: of the same place, op and
/// slot, in any call and step; and, of a raw kernel, of the same kernel family, wherever it runs.
/// A repetition may have been made in higher precision: what it differs by is rounding, too.
///
/// Place:    rank_diff.h feeds it step by step, before the step is compared.
/// Memory:   bands of single values are kept for one step, the others for the whole run.

#include <array>
#include <unordered_map>

#include "tools/diff/compare/compare.h"

namespace convtrace::diff {

/// What repetitions of the baseline differ by, at most.
struct NoiseBand {
  double rms = 0, norm = 0, mean = 0;  ///< relative, as in Apart
  bool bits = false;                   ///< even their hashes differ

  void widen(const NoiseBand& other);
};

class NoiseModel {
 public:
  /// Forgets the bands of single values.
  void begin_step() { values_.clear(); }
  /// @param repetition the same value in another run of the baseline.
  void learn(const ValueView& base, const ValueView& repetition);
  [[nodiscard]] NoiseBand band(const RecordKey& key) const;

 private:
  using Bands = std::unordered_map<RecordKey, NoiseBand, KeyHash>;

  Bands values_;
  std::array<Bands, 2> like_;  ///< by place and by kernel family
};

}  // namespace convtrace::diff

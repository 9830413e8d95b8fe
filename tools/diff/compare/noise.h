#pragma once
/// @file noise.h
/// Measures the differences between the baseline and repetitions of it. A difference of that size
/// is noise.
///
/// One repetition says little about one value, whose mean may agree by chance. So the largest
/// relative difference among similar values counts as well: those of the same place, op and slot in
/// any call and step, and for a raw kernel those of the same kernel family anywhere. A repetition
/// may be made in higher precision; its differences are then rounding.
///
/// Place:    rank_diff.h feeds it step by step, before the step is compared.
/// Memory:   bands of single values are kept for one step, the others for the whole run.

#include <array>
#include <unordered_map>

#include "tools/diff/compare/compare.h"

namespace convtrace::diff {

/// The largest differences between the baseline and its repetitions.
struct NoiseBand {
  double rms = 0, norm = 0, mean = 0;  ///< relative, as in Apart
  bool bits = false;                   ///< the hashes differ, too

  void widen(const NoiseBand& other);
  /// Of an element no difference of its own is known.
  [[nodiscard]] double of(Field measure) const {
    return measure == Field::kNorm ? norm : measure == Field::kMean ? mean : rms;
  }
};

class NoiseModel {
 public:
  /// Drops the bands of single values.
  void begin_step() { values_.clear(); }
  /// @param repetition  the same value in a repetition.
  void learn(const ValueView& base, const ValueView& repetition);
  [[nodiscard]] NoiseBand band(const RecordKey& key) const;

 private:
  using Bands = std::unordered_map<RecordKey, NoiseBand, KeyHash>;

  Bands values_;
  std::array<Bands, 2> like_;  ///< by place and by kernel family
};

}  // namespace convtrace::diff

#pragma once
/// @file exactness.h
/// Decides whether any difference of bits counts: it does if the recorded setups of the two runs
/// are equal and the program repeats its bits.
///
/// Place:    called by diff.h before a rank is compared.
/// Threads:  pure functions.
/// Source:   docs/comparison.md "One value".

#include <optional>
#include <string>
#include <vector>

#include "format/model/meta.h"
#include "tools/diff/births/births.h"
#include "tools/diff/verdict/result.h"
#include "tools/trace/names/rules.h"

namespace convtrace::diff {

struct ExactnessDecision {
  Exactness exactness = Exactness::kInexact;
  std::string why;  ///< a clause: "both runs ...", "the runs differ in ..."
};

/// @param differences  of the runs' metadata, from compare_meta().
/// @param repeats  whether repetitions of the baseline have the same bits; nullopt: there are no
/// repetitions.
[[nodiscard]] ExactnessDecision decide_exactness(ExactChoice choice,
                                                 const std::vector<PreflightEntry>& differences,
                                                 const format::TraceMeta& base,
                                                 const format::TraceMeta& cand,
                                                 std::optional<bool> repeats);

}  // namespace convtrace::diff

#pragma once
/// @file rules.h
/// Names the probable cause of a divergence: a finding, or the result of a rule over both runs'
/// records.
///
/// A rule connects the root to another difference: a setting, code, a type, a random generator. It
/// is silent unless the root's place fits. docs/lab/calibration.md has the accuracy of each rule.

#include <optional>

#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// @param result  with its root and facts decided. @return a finding that explains the root, else
/// the cause by the first rule that fits; nullopt if there is no root or no rule fits.
[[nodiscard]] std::optional<Cause> probable_cause(const DiffResult& result);

/// @return the unsuppressed finding that best explains `root`, among those of the root's rank at or
/// before it: one about the root's own memory; else one that only one run has; else any. Among
/// equals an error, then one in the root's scope, then the latest. A warning counts only if it is
/// about the root's memory or op, and if the other run does not have it, too, unless its effect on
/// values depends on chance.
[[nodiscard]] std::optional<FindingCause> find_cause(const RootReport& root, const Findings& base,
                                                     const Findings& cand);

}  // namespace convtrace::diff

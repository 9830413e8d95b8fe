#pragma once
/// @file finding_cause.h
/// Finds the reported bug that probably made the two runs diverge.

#include <optional>

#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// @return the unsuppressed finding that best explains `root`, among those of the root's rank at or
/// before it: one about the root's own memory; else one that only one run has; else any. Among
/// equals an error, then one in the root's scope, then the latest. A warning counts only if it is
/// about the root's memory or op, and if the other run has not the same, unless what it does to
/// values depends on chance.
[[nodiscard]] std::optional<FindingCause> find_cause(const RootReport& root, const Findings& base,
                                                     const Findings& cand);

}  // namespace convtrace::diff

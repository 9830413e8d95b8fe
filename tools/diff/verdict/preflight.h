#pragma once
/// @file preflight.h
/// What differs between two runs before any value is looked at: most divergences are explained
/// here.

#include <vector>

#include "format/model/meta.h"
#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// @return how the process was started; what the trace does not tell is empty.
[[nodiscard]] RunCommand command_of(const format::TraceMeta& meta);

/// @return facts with different values, in the order in which they matter: versions, switches that
/// change numerics, devices, the rest, convtrace's own settings. Where a trace is written and who
/// ran it are not facts about the training.
[[nodiscard]] std::vector<PreflightEntry> compare_meta(const format::TraceMeta& base,
                                                       const format::TraceMeta& cand);

}  // namespace convtrace::diff

#pragma once
/// @file next_commands.h
/// What to type after a divergence was found.
///
/// Errors:   none; names from the trace are quoted for the shell and for TOML.

#include <string>
#include <vector>

#include "tools/diff/result.h"

namespace convtrace::diff {

/// Shell lines that record the root's step again in both runs, with more raw values; for a kernel
/// that no framework op stands for, with the rule that makes its values be taken at all.
/// @pre `result.root` is set.
[[nodiscard]] std::vector<std::string> next_commands(const DiffResult& result);

}  // namespace convtrace::diff

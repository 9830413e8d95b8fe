#pragma once
/// @file map_file.h
/// The file of `--map`: names of ranks and modules in the other run.
///
///     [ranks]
///     0 = 4                                 # rank of the baseline = rank of the candidate
///     [modules]
///     "encoder.layers" = "model.blocks"     # path in the baseline = path in the candidate; so
///                                           # are all modules below it
/// Errors:   one line, with file and line number.

#include <string>

#include "tools/diff/model/rules.h"

namespace convtrace::diff {

/// @param error  one line, escaped. @return false if the file cannot be used.
[[nodiscard]] bool read_map(const std::string& path, DiffRules& rules, std::string& error);

}  // namespace convtrace::diff

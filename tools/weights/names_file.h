#pragma once
/// @file names_file.h
/// The file of `--map`: how parameters are called in the other program.
///
///     [modules]
///     "model" = ""                          # path in A = path in B; so are all modules below it
///     [fused]
///     qkv_proj = ["q_proj", "k_proj", "v_proj"]   # a module of one program, modules of the other
/// Errors:   one line, with file and line number.

#include <string>

#include "tools/weights/compare.h"

namespace convtrace::weights {

/// Adds the names of the file; a fused module that `names` has already is replaced.
/// @param error  one line, escaped. @return false if the file cannot be used.
[[nodiscard]] bool read_names(const std::string& path, Names& names, std::string& error);

}  // namespace convtrace::weights

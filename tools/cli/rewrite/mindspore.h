#pragma once
/// @file mindspore.h
/// `convtrace config --from-mindspore`: converts a MindSpore Dump configuration to settings and
/// rules.
///
/// Errors:   a file that is no JSON object is kUsage with one line. A key without an equivalent is
///           named in a comment of the output, never dropped silently.
/// Source:   MindSpore's documentation of MINDSPORE_DUMP_CONFIG.

#include <string>

#include "tools/common/exit_code.h"
#include "tools/common/json.h"

namespace convtrace::tools {

/// @return the TOML file; lines that begin with `#` name omitted parts, with the reason.
[[nodiscard]] std::string toml_from_mindspore(const Json& dump);

/// Prints it for the file at `path`.
[[nodiscard]] ExitCode print_mindspore_config(const std::string& path);

}  // namespace convtrace::tools

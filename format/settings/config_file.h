#pragma once
/// @file config_file.h
/// Settings from the TOML file that CONVTRACE_CONFIG names.
///
/// Errors:   appended as "file:line: ..." lines; good keys of a file with problems still apply.

#include <string>

#include "format/settings/settings.h"

namespace convtrace::settings {

/// Applies the settings among the root keys of `path`; `[[rule]]` tables are left to load_rules.
void apply_config_file(const std::string& path, LoadedSettings& loaded);

}  // namespace convtrace::settings

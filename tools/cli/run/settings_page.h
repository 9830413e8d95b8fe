#pragma once
/// @file settings_page.h
/// Generates the reference of settings and rules from their tables.

#include <string>
#include <vector>

#include "tools/common/reference.h"

namespace convtrace::tools {

/// @return docs/settings.md, without the end of its last line.
[[nodiscard]] std::string settings_page();

/// @return the same for the manual page.
[[nodiscard]] std::vector<ManualSection> settings_sections();

}  // namespace convtrace::tools

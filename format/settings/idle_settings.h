#pragma once
/// @file idle_settings.h
/// Finds settings that are valid and have no effect beside the others, so that the user can be
/// told.
///
/// Threads:  plain functions.

#include <string>
#include <string_view>
#include <vector>

#include "format/settings/rules.h"
#include "format/settings/settings.h"

namespace convtrace::settings {

/// @return the place where a setting was given, as a prefix: "rules.toml:3: ", or "".
[[nodiscard]] std::string where_said(const SaidBy& said_by, std::string_view variable);

/// @return one line for each setting without effect.
[[nodiscard]] std::vector<std::string> idle_settings(const SaidBy& said_by,
                                                     const Settings& settings,
                                                     const std::vector<Rule>& rules);

}  // namespace convtrace::settings

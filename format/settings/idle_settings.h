#pragma once
/// @file idle_settings.h
/// Settings that are good and have no effect beside the others: whoever gave them expects one.
///
/// Threads:  plain functions.

#include <string>
#include <string_view>
#include <vector>

#include "format/settings/rules.h"
#include "format/settings/settings.h"

namespace convtrace::settings {

/// @return where a setting was given, to stand before its name: "rules.toml:3: ", or nothing.
[[nodiscard]] std::string where_said(const SaidBy& said_by, std::string_view variable);

/// @return one line for each setting that was given in vain.
[[nodiscard]] std::vector<std::string> idle_settings(const SaidBy& said_by,
                                                     const Settings& settings,
                                                     const std::vector<Rule>& rules);

}  // namespace convtrace::settings

#pragma once
/// @file controls.h
/// All that a user wants of a process: settings and rules, read and judged together.
///
/// Place:    the engine when it arms and when the file has changed; `convtrace run` and `doctor`
///           before that.
/// Errors:   problems: one complete line each, without "convtrace:".

#include <string>
#include <vector>

#include "format/settings/rules.h"
#include "format/settings/settings.h"

namespace convtrace::settings {

struct LoadedControls {
  Settings settings;
  std::vector<Rule> rules;  ///< of all ranks; none where there are problems
  std::vector<std::string> problems;
  std::vector<std::string> warnings;  ///< of what was asked for and has no effect; in that form too
};

/// @return how much is taken of what no rule names.
[[nodiscard]] inline Mode mode_without_rule(const Settings& settings) {
  return settings.mode == Mode::kSnapshot && !settings.all ? Mode::kStats : settings.mode;
}

/// Reads a null-terminated environment, and the file that it names.
[[nodiscard]] LoadedControls load_controls(const char* const* environment);

}  // namespace convtrace::settings

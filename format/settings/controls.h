#pragma once
/// @file controls.h
/// All settings and rules of a process, read and checked together.
///
/// Place:    the engine, at its start and when the file has changed; before that `convtrace run`
///           and `doctor`.
/// Errors:   problems: one complete line each, without "convtrace:".

#include <string>
#include <vector>

#include "format/settings/rules.h"
#include "format/settings/settings.h"

namespace convtrace::settings {

struct LoadedControls {
  Settings settings;
  std::vector<Rule> rules;  ///< rules for all ranks; empty if there are problems
  std::vector<std::string> problems;
  std::vector<std::string> warnings;  ///< about settings without effect; same form as problems
};

/// @return the mode for values and launches that no rule names.
[[nodiscard]] inline Mode mode_without_rule(const Settings& settings) {
  return settings.mode == Mode::kSnapshot && !settings.all ? Mode::kStats : settings.mode;
}

/// Reads a null-terminated environment, and the settings file that it names.
[[nodiscard]] LoadedControls load_controls(const char* const* environment);

}  // namespace convtrace::settings

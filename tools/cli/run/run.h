#pragma once
/// @file run.h
/// `convtrace run`: becomes another program, with the preload library and the settings in its
/// environment.
///
/// Errors:   a bad value is found before anything is started: kUsage.

#include <string>
#include <utility>
#include <vector>

#include "format/settings/settings.h"
#include "tools/common/exit_code.h"

namespace convtrace::tools {

struct RunOptions {
  /// Settings given as options, in the order given.
  std::vector<std::pair<const settings::SettingSpec*, std::string>> values;
  bool dry_run = false;
  std::vector<std::string> command;
};

/// @return the option of a setting: "--max-bytes".
[[nodiscard]] std::string option_name(const settings::SettingSpec& spec);

/// What is known of a command before it is started.
struct Prepared {
  ExitCode refusal = ExitCode::kClean;  ///< anything else: it must not be started; said on stderr
  std::string in_vain;  ///< why nothing would be traced; empty: nothing stands against it
  settings::Settings settings;
};

/// Checks settings and tree, and puts both into this process's environment, for what it starts.
[[nodiscard]] Prepared prepare_run(const RunOptions& options);

/// Becomes the command, whose environment is prepared. Returns only if that fails.
/// @param traced  false: its user knows already that there will be no trace.
/// @return 126 or 127, as shells do when the command cannot be executed or found.
[[nodiscard]] int start_prepared(const std::vector<std::string>& command, bool traced);

/// Executes the command; returns only if that fails, or after printing the environment.
/// @return an ExitCode, or 126 or 127 as shells do when the command cannot be executed or found.
[[nodiscard]] int run_command(const RunOptions& options);

}  // namespace convtrace::tools

#pragma once
/// @file run.h
/// `convtrace run`: replaces this process by another program, with the preload library and the
/// settings in its environment.
///
/// Errors:   an invalid value is detected before anything is started: kUsage.

#include <string>
#include <utility>
#include <vector>

#include "format/settings/settings.h"
#include "tools/common/exit_code.h"

namespace convtrace::tools {

struct RunOptions {
  /// Settings given as options, in the order given.
  std::vector<std::pair<const settings::SettingSpec*, std::string>> values;
  std::string like{};  ///< trace of the run whose settings are taken; empty: none
  bool dry_run = false;
  std::vector<std::string> command;
};

/// @return the option of a setting: "--max-bytes".
[[nodiscard]] std::string option_name(const settings::SettingSpec& spec);

/// @return the path of libconvtrace.so; "", after a line on stderr, if there is none that
/// LD_PRELOAD can name.
[[nodiscard]] std::string preload_library();

/// The result of the checks before a command is started.
struct Prepared {
  /// Another value: it must not be started, and stderr has the reason.
  ExitCode refusal = ExitCode::kClean;
  std::string in_vain;  ///< why nothing would be traced; "" if there is no obstacle
  settings::Settings settings;
};

/// Checks settings and installation, and puts both into this process's environment.
[[nodiscard]] Prepared prepare_run(const RunOptions& options);

/// Executes the command in the prepared environment. Returns only if that fails.
/// @param traced  false: the user knows already that there will be no trace.
/// @return 126 or 127, as shells do when the command cannot be executed or found.
[[nodiscard]] int start_prepared(const std::vector<std::string>& command, bool traced);

}  // namespace convtrace::tools

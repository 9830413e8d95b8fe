#pragma once
/// @file repeat.h
/// `convtrace repeat`: runs a command several times under the preload library and reports whether
/// the runs are equal to the bit.
///
/// How:      each run writes into a folder of its own, one trace a process. convtrace-diff, beside
///           this program, compares the first run with each other one.
/// Errors:   a line on stderr. A run that failed or left no trace is kDamagedInput, because it is
///           not known whether the command repeats.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tools/common/exit_code.h"

namespace convtrace::tools {

class RepeatCommand {
 public:
  explicit RepeatCommand(CLI::App& app);
  RepeatCommand(const RepeatCommand&) = delete;
  RepeatCommand& operator=(const RepeatCommand&) = delete;

  [[nodiscard]] bool chosen() const { return app_->parsed(); }
  /// @param command what followed `--`.
  /// @return kClean: the runs repeat; kFailure: they do not; kUsage; kDamagedInput: not known.
  [[nodiscard]] ExitCode run(const std::vector<std::string>& command) const;

 private:
  CLI::App* app_;
  unsigned count_ = 2;
  std::string output_;
};

}  // namespace convtrace::tools

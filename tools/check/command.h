#pragma once
/// @file command.h
/// `convtrace check`: finds the faults that one run alone proves.

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "tools/common/exit_code.h"

namespace convtrace::check {

class CheckCommand {
 public:
  explicit CheckCommand(CLI::App& app);
  [[nodiscard]] bool chosen() const { return command_->parsed(); }
  /// @return kClean: nothing, or hints alone; kFindings: an error or a warning; kDamagedInput;
  /// kUsage.
  [[nodiscard]] tools::ExitCode run() const;

 private:
  CLI::App* command_;
  std::vector<std::string> paths_, only_, skip_;
  std::string json_, html_, junit_;
  bool brief_ = false, list_ = false, live_ = false;
};

}  // namespace convtrace::check

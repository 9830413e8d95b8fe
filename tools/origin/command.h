#pragma once
/// @file command.h
/// `convtrace origin`: where a job went wrong first.

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "tools/common/exit_code.h"

namespace convtrace::origin {

class OriginCommand {
 public:
  explicit OriginCommand(CLI::App& app);
  [[nodiscard]] bool chosen() const { return command_->parsed(); }
  /// @return kClean; kFindings: an origin; kDamagedInput; kUsage.
  [[nodiscard]] tools::ExitCode run() const;

 private:
  CLI::App* command_;
  std::vector<std::string> paths_;
  std::string json_, html_;
  unsigned threads_ = 0;
};

}  // namespace convtrace::origin

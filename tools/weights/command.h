#pragma once
/// @file command.h
/// `convtrace weights`: whether two programs hold the same weights.

#include <CLI/App.hpp>
#include <optional>
#include <string>

#include "tools/common/exit_code.h"

namespace convtrace::weights {

class WeightsCommand {
 public:
  explicit WeightsCommand(CLI::App& app);
  [[nodiscard]] bool chosen() const { return command_->parsed(); }
  /// @return kClean: no difference; kFindings; kDamagedInput: no difference in what could be read,
  /// or nothing was recorded; kUsage.
  [[nodiscard]] tools::ExitCode run() const;

 private:
  CLI::App* command_;
  std::string a_, b_, map_, json_, step_a_, step_b_;
};

}  // namespace convtrace::weights

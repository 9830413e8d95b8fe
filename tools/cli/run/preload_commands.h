#pragma once
/// @file preload_commands.h
/// `convtrace path` and `convtrace env`: the preload library's path, and the text by which a shell,
/// a scheduler or a container puts it into the environment of a program.
///
/// Errors:   a line on stderr and kFailure, if the library is not beside this program or LD_PRELOAD
///           cannot name it.

#include <CLI/CLI.hpp>

#include "tools/common/exit_code.h"

namespace convtrace::tools {

class PreloadCommands {
 public:
  explicit PreloadCommands(CLI::App& app);

  [[nodiscard]] bool chosen() const { return path_->parsed() || env_->parsed(); }
  [[nodiscard]] ExitCode run() const;

 private:
  CLI::App* path_;
  CLI::App* env_;
  bool shell_ = false, slurm_ = false, docker_ = false, k8s_ = false, ray_ = false;
};

}  // namespace convtrace::tools

#pragma once
/// @file read_commands.h
/// Options of the commands that read traces.
///
/// Place:    main.cpp; commands.h has the commands.

#include <CLI/CLI.hpp>
#include <string>

#include "tools/cli/base/commands.h"
#include "tools/common/exit_code.h"

namespace convtrace::tools {

class ReadCommands {
 public:
  /// Adds info, show, findings, recover, strip and verify.
  explicit ReadCommands(CLI::App& app);
  ReadCommands(const ReadCommands&) = delete;
  ReadCommands& operator=(const ReadCommands&) = delete;

  /// Runs the command that was given.
  [[nodiscard]] ExitCode run();

 private:
  /// The arguments that all of them have.
  struct Command {
    CLI::App* app = nullptr;
    std::string path;
    bool json = false;
  };
  static void add(CLI::App& app, Command& command, const char* name, const char* help,
                  const char* json_help);
  void add_show_options();
  void add_recover_options();
  void add_strip_options();
  [[nodiscard]] ExitCode run_show();

  Command info_, show_, findings_, recover_, strip_, verify_;
  bool info_all_ = false;
  ShowOptions show_options_;
  FindingsOptions findings_options_;
  std::string steps_ = "all";
  bool density_ = false, memory_ = false, norms_ = false, nan_ = false;
  RecoverOptions recover_options_;
  StripOptions strip_options_;
};

}  // namespace convtrace::tools

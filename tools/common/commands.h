#pragma once
/// @file commands.h
/// The commands of `convtrace`: each adds itself with its options, and the given one is run.
///
/// Place:     tools/cli/main.cpp. Every command has a function that adds it.
/// Ownership: CLI11 refers to the options, which live as long as the command.

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/common/exit_code.h"

namespace convtrace::tools {

class Commands {
 public:
  /// @param program  must outlive this. @param words  what followed `--`.
  Commands(CLI::App& program, std::vector<std::string> words)
      : program_(program), words_(std::move(words)) {}

  /// @param act  takes the options and returns an exit code.
  /// @return the command, and its options with their defaults.
  template <typename Options, typename Run>
  std::pair<CLI::App&, Options&> add(const char* name, const char* help, Run act) {
    const auto options = std::make_shared<Options>();
    CLI::App* const command = program_.add_subcommand(name, help);
    command->callback([this, options, act] {
      chosen_ = [options, act] { return static_cast<int>(act(*options)); };
    });
    return {*command, *options};
  }

  [[nodiscard]] const std::vector<std::string>& words() const { return words_; }
  /// Runs the command that was given, after the command line was read. @return its exit code.
  [[nodiscard]] int run() const { return chosen_(); }

 private:
  CLI::App& program_;
  std::vector<std::string> words_;
  std::function<int()> chosen_;
};

}  // namespace convtrace::tools

// The commands that have a folder of their own; tools/cli/base/commands.h has the others.
namespace convtrace::check {
/// `convtrace check`: finds the faults that one run alone proves.
void add_check(tools::Commands& commands);
}  // namespace convtrace::check
namespace convtrace::origin {
/// `convtrace origin`: where a job went wrong first.
void add_origin(tools::Commands& commands);
}  // namespace convtrace::origin
namespace convtrace::weights {
/// `convtrace weights`: whether two programs hold the same weights.
void add_weights(tools::Commands& commands);
}  // namespace convtrace::weights

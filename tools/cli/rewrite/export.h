#pragma once
/// @file export.h
/// `convtrace export`: converts traces to formats of other programs.
///
/// Place:    main.cpp. The work is done by the Python package of tools/python, which replaces this
///           process.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/common/exit_code.h"

namespace convtrace::tools {

class ExportCommand {
 public:
  explicit ExportCommand(CLI::App& app);
  ExportCommand(const ExportCommand&) = delete;
  ExportCommand& operator=(const ExportCommand&) = delete;

  [[nodiscard]] bool chosen() const { return app_->parsed(); }
  /// Returns only when Python cannot be started.
  [[nodiscard]] ExitCode run() const;

 private:
  CLI::App* app_;
  std::string format_, output_, by_ = "rank";
  bool follow_ = false, overwrite_ = false;
  std::optional<uint64_t> start_step_, end_step_;
  std::vector<std::string> traces_;
};

}  // namespace convtrace::tools

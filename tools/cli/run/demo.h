#pragma once
/// @file demo.h
/// `convtrace demo`: trains a small GPT with a correct and with a broken custom op, and compares.
///
/// Place:    main.cpp. The work is done by tools/demo_gpt/demo.py, which replaces this process.

#include <CLI/CLI.hpp>
#include <string>

#include "tools/cli/base/python_script.h"
#include "tools/common/exit_code.h"

namespace convtrace::tools {

class DemoCommand {
 public:
  explicit DemoCommand(CLI::App& app)
      : app_(app.add_subcommand("demo",
                                "Have convtrace find a bug in the training of a small GPT")) {
    app_->add_option("-o,--output", output_, "The folder for traces, losses and reports")
        ->type_name("DIR")
        ->capture_default_str();
    app_->footer("Needs a python3 that has PyTorch. Exit code: 0 if the verdict names the bug.");
  }
  DemoCommand(const DemoCommand&) = delete;
  DemoCommand& operator=(const DemoCommand&) = delete;

  [[nodiscard]] bool chosen() const { return app_->parsed(); }
  /// Returns only when Python cannot be started.
  [[nodiscard]] ExitCode run() const { return become_script("demo/demo.py", {output_}); }

 private:
  CLI::App* app_;
  std::string output_ = "convtrace-demo";
};

}  // namespace convtrace::tools

#include "tools/cli/base/commands.h"
#include "tools/cli/base/python_script.h"

namespace convtrace::tools {

struct DemoOptions {
  std::string output = "convtrace-demo";
};

void add_demo(Commands& commands) {
  auto [command, options] = commands.add<DemoOptions>(
      "demo", "Have convtrace find a bug in the training of a small GPT",
      [](const DemoOptions& given) { return become_script("demo/demo.py", {given.output}); });
  command.add_option("-o,--output", options.output, "The folder for traces, losses and reports")
      ->type_name("DIR")
      ->capture_default_str();
  command.footer("Needs a python3 that has PyTorch. Exit code: 0 if the verdict names the bug.");
}

}  // namespace convtrace::tools

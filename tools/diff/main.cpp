#include <exception>
#include <iostream>

#include "tools/common/exit_code.h"
#include "tools/diff/command.h"
#include "tools/report/outputs.h"
#include "tools/report/text_layout.h"

int main(int argc, char** argv) {
  convtrace::diff::remove_unfinished_files_on_signals();
  try {
    return convtrace::diff::diff_command(argc, argv, std::cout, std::cerr,
                                         convtrace::diff::own_terminal());
  } catch (const std::exception& failure) {
    std::cerr << "convtrace-diff: " << failure.what() << "\n";
    return static_cast<int>(convtrace::tools::DiffExitCode::kUsage);
  }
}

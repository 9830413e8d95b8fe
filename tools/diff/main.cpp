#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <iostream>

#include "tools/common/exit_code.h"
#include "tools/diff/command.h"

int main(int argc, char** argv) {
  const bool color = isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  try {
    return convtrace::diff::diff_command(argc, argv, std::cout, std::cerr, color);
  } catch (const std::exception& failure) {
    std::cerr << "convtrace-diff: " << failure.what() << "\n";
    return static_cast<int>(convtrace::tools::DiffExitCode::kUsage);
  }
}

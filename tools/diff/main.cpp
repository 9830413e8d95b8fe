#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <string_view>

#include "tools/common/exit_code.h"
#include "tools/diff/command.h"

int main(int argc, char** argv) {
  const char* const terminal = std::getenv("TERM");
  const bool color = isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr &&
                     terminal != nullptr && std::string_view(terminal) != "dumb";
  try {
    return convtrace::diff::diff_command(argc, argv, std::cout, std::cerr, color);
  } catch (const std::exception& failure) {
    std::cerr << "convtrace-diff: " << failure.what() << "\n";
    return static_cast<int>(convtrace::tools::DiffExitCode::kUsage);
  }
}

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <iostream>
#include <string_view>

#include "tools/common/exit_code.h"
#include "tools/diff/command.h"
#include "tools/diff/report/outputs.h"

namespace {

/// Cleans up and ends as the signal would have ended it.
extern "C" void end_by(int number) {
  convtrace::diff::remove_unfinished_files();
  signal(number, SIG_DFL);
  raise(number);
}

convtrace::diff::Terminal terminal() {
  convtrace::diff::Terminal terminal;
  const char* const name = std::getenv("TERM");
  const bool able = name != nullptr && std::string_view(name) != "dumb";
  terminal.progress = able && isatty(STDERR_FILENO) == 1;
  if (isatty(STDOUT_FILENO) != 1) return terminal;
  terminal.color = able && std::getenv("NO_COLOR") == nullptr;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) terminal.columns = size.ws_col;
  return terminal;
}

}  // namespace

int main(int argc, char** argv) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    if (signal(number, end_by) == SIG_IGN) signal(number, SIG_IGN);  // as nohup wants it
  }
  try {
    return convtrace::diff::diff_command(argc, argv, std::cout, std::cerr, terminal());
  } catch (const std::exception& failure) {
    std::cerr << "convtrace-diff: " << failure.what() << "\n";
    return static_cast<int>(convtrace::tools::DiffExitCode::kUsage);
  }
}

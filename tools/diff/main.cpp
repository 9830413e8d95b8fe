#include <signal.h>

#include <exception>
#include <iostream>

#include "tools/common/exit_code.h"
#include "tools/diff/command.h"
#include "tools/diff/report/outputs.h"
#include "tools/diff/report/text_layout.h"

namespace {

/// Cleans up and ends as the signal would have ended it.
extern "C" void end_by(int number) {
  convtrace::diff::remove_unfinished_files();
  signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

int main(int argc, char** argv) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    if (signal(number, end_by) == SIG_IGN) signal(number, SIG_IGN);  // as nohup wants it
  }
  try {
    return convtrace::diff::diff_command(argc, argv, std::cout, std::cerr,
                                         convtrace::diff::own_terminal());
  } catch (const std::exception& failure) {
    std::cerr << "convtrace-diff: " << failure.what() << "\n";
    return static_cast<int>(convtrace::tools::DiffExitCode::kUsage);
  }
}

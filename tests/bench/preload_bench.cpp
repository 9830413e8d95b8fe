// What the preload costs a process that does not train: rows preload.exec and preload.python, JSON
// on stdout.
//
// usage: bench_preload [--quick]

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/bench/rows.h"

namespace {

namespace bench = convtrace::bench;

struct Command {
  std::vector<std::string> arguments;
  std::string preload;  // empty: none
};

/// The environment of this process without a preload, plus `preload`.
std::vector<std::string> environment_with(const std::string& preload) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("LD_PRELOAD=") || text.starts_with("CONVTRACE")) continue;
    variables.emplace_back(text);
  }
  if (!preload.empty()) variables.push_back("LD_PRELOAD=" + preload);
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// Runs the command `count` times, one after the other. @return seconds.
double seconds_of(Command command, int count) {
  std::vector<std::string> variables = environment_with(command.preload);
  const std::vector<char*> arguments = pointers(command.arguments);
  const std::vector<char*> environment = pointers(variables);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) {
    pid_t child = 0;
    int status = -1;
    if (posix_spawn(&child, arguments[0], nullptr, nullptr, arguments.data(), environment.data()) !=
            0 ||
        waitpid(child, &status, 0) != child || status != 0) {
      std::fprintf(stderr, "bench_preload: %s failed with status %d\n", arguments[0], status);
      std::exit(1);
    }
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<double> compare(const Command& with, const Command& without, int runs, int pairs) {
  seconds_of(with, 2);  // into the page cache
  seconds_of(without, 2);
  return bench::ratios_of(
      pairs, [&] { return seconds_of(with, runs); }, [&] { return seconds_of(without, runs); });
}

}  // namespace

int main(int argc, char** argv) {
  for (const char* library : {PRELOAD, EMPTY_PRELOAD}) {
    // The loader only warns of a preload that is not there, and the ratio would mean nothing.
    if (access(library, R_OK) != 0) {
      std::fprintf(stderr, "bench_preload: %s is not built\n", library);
      return 1;
    }
  }
  const bool quick = argc > 1 && std::string_view(argv[1]) == "--quick";
  const int pairs = quick ? 41 : 201;
  using bench::Goal;
  bench::Rows rows;
  rows.print({"preload.exec", "ratio", Goal::kAtMost, 1.08, "/bin/true with an empty preload"},
             compare({{"/bin/true"}, PRELOAD}, {{"/bin/true"}, EMPTY_PRELOAD}, 20, pairs));
  const std::vector<std::string> python{PYTHON, "-c", "pass"};
  rows.print({"preload.python", "ratio", Goal::kAtMost, 1.15, "python3 -c pass without a preload"},
             compare({python, PRELOAD}, {python, ""}, 3, pairs));
  return 0;
}

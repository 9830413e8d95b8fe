#pragma once
/// @file process.h
/// Runs a program to its end and captures its output.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/temp_dir.h"

namespace convtrace::test {

struct ProcessResult {
  int exit_code = -1;  ///< -1 when a signal ended it
  int signal = 0;
  std::string out, err;
};

struct ProcessOptions {
  std::vector<std::string> environment;  ///< "NAME=value", added to this process's own
  std::vector<std::string> unset;        ///< removed from it
  std::string folder;                    ///< working folder; empty: this process's
};

inline std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(text).str();
}

inline ProcessResult run_process(const std::vector<std::string>& arguments,
                                 const ProcessOptions& options = {}) {
  const TempDir output;
  const pid_t child = fork();
  if (child == 0) {
    const int out = open((output / "out").c_str(), O_WRONLY | O_CREAT, 0600);
    const int err = open((output / "err").c_str(), O_WRONLY | O_CREAT, 0600);
    if (dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(126);
    if (!options.folder.empty() && chdir(options.folder.c_str()) != 0) _exit(126);
    for (const std::string& name : options.unset) unsetenv(name.c_str());
    for (const std::string& entry : options.environment) putenv(strdup(entry.c_str()));
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(strdup(argument.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  ProcessResult result;
  if (child < 0 || waitpid(child, &status, 0) != child) return result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.out = read_file(output / "out");
  result.err = read_file(output / "err");
  return result;
}

}  // namespace convtrace::test

#pragma once
/// @file execute.h
/// Replaces this process by another program.

#include <errno.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace convtrace::tools {

/// Replaces this process by the program words[0], found as a shell finds it.
/// @pre words is not empty. @return errno, if the program could not be started; else it does not
/// return.
[[nodiscard]] inline int execute(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  return errno;
}

}  // namespace convtrace::tools

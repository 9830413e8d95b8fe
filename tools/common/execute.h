#pragma once
/// @file execute.h
/// Becoming another program.

#include <errno.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace convtrace::tools {

/// Replaces this process by the program words[0], found as a shell finds it.
/// @pre words is not empty. @return errno: it returns only if that failed.
[[nodiscard]] inline int execute(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  return errno;
}

}  // namespace convtrace::tools

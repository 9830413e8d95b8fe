#pragma once
/// @file cli.h
/// Runs the built `convtrace` and reads what it says.

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/trace_builder.h"
#include "tools/common/json.h"

namespace convtrace::test {

inline ProcessResult convtrace(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{CONVTRACE_PROGRAM};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_process(command);
}

/// @return the objects of a `--json` output, one a line.
inline std::vector<tools::Json> json_lines(const std::string& text) {
  std::vector<tools::Json> objects;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) objects.push_back(tools::Json::parse(line));
  return objects;
}

}  // namespace convtrace::test

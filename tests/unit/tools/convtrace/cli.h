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

inline ProcessResult convtrace(std::vector<std::string> arguments,
                               const ProcessOptions& options = {}) {
  arguments.insert(arguments.begin(), CONVTRACE_PROGRAM);
  return run_process(arguments, options);
}

/// @return the objects of a `--json` output, one a line.
inline std::vector<tools::Json> json_lines(const std::string& text) {
  std::vector<tools::Json> objects;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) objects.push_back(tools::Json::parse(line));
  return objects;
}

}  // namespace convtrace::test

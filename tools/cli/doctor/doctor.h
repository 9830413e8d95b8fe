#pragma once
/// @file doctor.h
/// `convtrace doctor`: reports whether tracing works on this machine, and what to do if not.
///
/// Errors:   problems of the machine are the result; no problem makes the command itself fail.

#include <string>
#include <vector>

#include "tools/common/exit_code.h"

namespace convtrace::tools {

struct DoctorOptions {
  std::vector<std::string> command;  ///< the command to be traced; may be empty
  bool json = false;
};

/// Prints a line for each check with its remedy. @return kFailure if something will not work.
[[nodiscard]] ExitCode run_doctor(const DoctorOptions& options);

}  // namespace convtrace::tools

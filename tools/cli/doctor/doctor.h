#pragma once
/// @file doctor.h
/// `convtrace doctor`: will tracing work here, and if not, what is to be done?
///
/// Errors:   what is wrong with the machine is its result; nothing it looks at can make it fail.

#include <string>
#include <vector>

#include "tools/common/exit_code.h"

namespace convtrace::tools {

struct DoctorOptions {
  std::vector<std::string> command;  ///< what is to be traced; may be empty
  bool json = false;
};

/// Prints a line for each check with its remedy. @return kFailure if something will not work.
[[nodiscard]] ExitCode run_doctor(const DoctorOptions& options);

}  // namespace convtrace::tools

#pragma once
/// @file exit_code.h
/// Exit codes of the programs: part of their interface, scripts branch on them.

namespace convtrace::tools {

/// `convtrace` and its commands.
enum class ExitCode : int {
  kClean = 0,
  kFailure = 1,
  kUsage = 2,
  kDamagedInput = 3,  ///< a result was obtained, but the input was unclosed, damaged or incomplete
  kFindings = 4,      ///< `findings`: an unsuppressed error; `check`: an error or a warning
};

/// `convtrace-diff`.
enum class DiffExitCode : int {
  kSame = 0,
  kDiverged = 1,
  kUsage = 2,          ///< usage, or an input that cannot be read
  kNotComparable = 3,  ///< or incomplete
  kFindings = 4,       ///< values agree, but a trace holds error-level findings
};

}  // namespace convtrace::tools

#pragma once
/// @file commands.h
/// The commands of `convtrace`, after their options were read.
///
/// Errors:   a line on stderr and the exit code of exit_code.h. Data goes to standard output.

#include <string>
#include <vector>

#include "format/settings/settings.h"
#include "tools/common/exit_code.h"

namespace convtrace::tools {

[[nodiscard]] ExitCode show_info(const std::string& path, bool json, bool all);

struct ShowOptions {
  std::string path;
  bool json = false;
  std::vector<std::string> records;  ///< kinds to show, as in `record`; empty: all
  settings::StepSet steps;
  bool follow = false;  ///< go on while the trace is being written
};
[[nodiscard]] ExitCode show_records(const ShowOptions& options);
/// Prints how much of the input of each embedding and loss is padding.
[[nodiscard]] ExitCode show_density(const ShowOptions& options);
/// Prints the memory of the framework's allocator at the ends of forward and backward of each step.
[[nodiscard]] ExitCode show_memory(const ShowOptions& options);
/// Prints loss and gradient norms of each step, by weight and in all.
[[nodiscard]] ExitCode show_norms(const ShowOptions& options);
/// Finds the origin of the first value that is not finite.
[[nodiscard]] ExitCode show_nan(const ShowOptions& options);

struct FindingsOptions {
  std::string path;
  bool json = false;
  bool brief = false;   ///< the first finding alone, as a short answer in JSON
  bool replay = false;  ///< judge the recorded events anew
  bool strict = false;  ///< a warning ends with kFindings, too
};
/// Prints findings by the faults they are about, and how many there are.
[[nodiscard]] ExitCode show_findings(const FindingsOptions& options);

struct RecoverOptions {
  std::string path;
  std::string output;
  bool overwrite = false;
  bool json = false;
};
/// Copies the intact parts of a trace into a new trace.
[[nodiscard]] ExitCode recover_trace(const RecoverOptions& options);

struct StripOptions {
  std::string path;
  std::string output;
  bool overwrite = false;
  bool hashes_only = false;
  bool json = false;
};
/// Copies a trace without the contents that should not be given to others.
[[nodiscard]] ExitCode strip_trace(const StripOptions& options);

/// Checks every byte of a trace.
[[nodiscard]] ExitCode verify_trace(const std::string& path, bool json);

}  // namespace convtrace::tools

#pragma once
/// @file next_commands.h
/// The commands to run after a divergence was found.
///
/// Errors:   none; names from the trace are quoted for the shell and for TOML.

#include <string>
#include <vector>

#include "tools/diff/verdict/result.h"

namespace convtrace::diff {

/// @return whether the report may have commands.
[[nodiscard]] inline bool has_next(const DiffResult& result) {
  return result.verdict == Verdict::kCannotTell || (result.root && result.root->leads_on());
}

/// @return "convtrace repeat -- " with the program's own command line.
[[nodiscard]] std::string repeat_command(const RunCommand& run);

/// @return the purpose of the commands: "store these values in both runs, ...:".
[[nodiscard]] std::string next_title(const DiffResult& result);

/// @return shell lines that record the root's step again in both runs and store the values of
/// exactly the modules or the kernel in question, so that the next diff compares them element by
/// element. Environment variables that one run alone had are set; a file that the runs had in two
/// versions is checked before a run, so that a block that is pasted whole does not record one
/// program twice. Where the traces hold no difference between the programs: a line that runs one of
/// them twice. Empty if the values have one element, which the report shows already.
/// Where rounding hides every fault: lines that compare the steps before that.
/// @pre has_next().
[[nodiscard]] std::vector<std::string> next_commands(const DiffResult& result);

}  // namespace convtrace::diff

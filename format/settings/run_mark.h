#pragma once
/// @file run_mark.h
/// Tells a command started by `convtrace run` whether any process below it was traced: a file in
/// memory that the command holds open, empty until one of these processes writes to it.
/// CONVTRACE_RUN names it as PROCESS:DESCRIPTOR, because a descriptor alone is not inherited by
/// processes that Python starts. The preload library reads the file when the command ends.
///
/// Threads:  plain functions.
/// Errors:   none. If the file cannot be created or reached (another user, another machine, a
///           container), nothing is reported.

#include <string>

namespace convtrace::settings {

/// Opens the mark for the command that this process is about to become.
/// @return the value for kAnnounceName; if there is no mark, one that names no process.
[[nodiscard]] std::string open_run_mark();

/// Notes that this process is traced, or that its user knows why it is not, and closes its own
/// descriptor of the mark: from here on the program has none that it does not have untraced.
/// @param announced  value of kAnnounceName in this process; does nothing if it is null, or from a
/// run that has ended.
void leave_run_mark(const char* announced) noexcept;

}  // namespace convtrace::settings

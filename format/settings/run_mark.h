#pragma once
/// @file run_mark.h
/// How a command that was started by `convtrace run` learns whether any process below it was
/// traced: a file in memory that the command holds open, empty until one of them writes to it.
/// CONVTRACE_RUN names it to all of them as PROCESS:DESCRIPTOR, because a descriptor alone does
/// not reach what Python starts. The preload library looks at it when the command ends.
///
/// Threads:  plain functions.
/// Errors:   none. Where the file cannot be had or reached (another user, another machine, a
///           container) nobody is told anything.

#include <string>

namespace convtrace::settings {

/// Opens the mark for the command that this process is about to become.
/// @return the value for kAnnounceName; without a mark one that names no process.
[[nodiscard]] std::string open_run_mark();

/// This process is traced, or its user knows why it is not.
/// @param announced  value of kAnnounceName in this process; null, or of another run that has
/// ended, does nothing.
void leave_run_mark(const char* announced) noexcept;

}  // namespace convtrace::settings

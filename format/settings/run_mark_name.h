/// @file run_mark_name.h
/// Name of the file in memory that run_mark.h describes; C, because the preload library reads it.

#ifndef CONVTRACE_FORMAT_SETTINGS_RUN_MARK_NAME_H
#define CONVTRACE_FORMAT_SETTINGS_RUN_MARK_NAME_H

#define CONVTRACE_RUN_MARK_NAME "convtrace-run"
/// What a link of /proc/PID/fd to it says.
#define CONVTRACE_RUN_MARK_LINK "/memfd:" CONVTRACE_RUN_MARK_NAME " (deleted)"

#endif

/// @file run_mark_name.h
/// Name of the file in memory that run_mark.h describes; C, because the preload library reads it.

#ifndef CONVTRACE_FORMAT_SETTINGS_RUN_MARK_NAME_H
#define CONVTRACE_FORMAT_SETTINGS_RUN_MARK_NAME_H

#define CONVTRACE_RUN_MARK_NAME "convtrace-run"
/// Target of a link in /proc/PID/fd that leads to it.
#define CONVTRACE_RUN_MARK_LINK "/memfd:" CONVTRACE_RUN_MARK_NAME " (deleted)"

#endif

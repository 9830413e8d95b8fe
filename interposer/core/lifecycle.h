#pragma once
/// @file lifecycle.h
/// Creates and ends the process's only engine (start, fork and exit), and connects it with the preload
/// library.
///
/// The driver enters with InitializeInjection and the observer with convtrace_start; both get the
/// same engine. Nothing is printed or created unless a setting is wrong.
///
/// Threads:  any.
/// Errors:   none reach the host.

#include <atomic>

namespace convtrace::engine {

class Engine;

/// Starts the engine if it was not started before. @return it, or null if this process is not
/// traced.
Engine* start_engine() noexcept;

/// Closes the trace within two seconds; nothing is recorded afterwards.
void end_tracing() noexcept;

/// @return the engine; null before start_engine(), and in a fork child that must not be traced.
Engine* running_engine() noexcept;

/// Publishes the engine's functions in the preload library's table (hooks_v1.h), if there is one.
/// @return false if another copy of the engine has published its own.
bool publish_hooks() noexcept;

/// @return the switch for reports of CPU tensors; null if the library is not loaded.
[[nodiscard]] std::atomic<int>* cpu_reports() noexcept;

/// Notes, for the preload library and for `convtrace run`, that there is a trace, or a message that
/// explains why not.
void mark_explained() noexcept;

}  // namespace convtrace::engine

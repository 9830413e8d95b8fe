#pragma once
/// @file lifecycle.h
/// Creates and ends the process's only engine: start, fork and exit.
///
/// The driver enters with InitializeInjection and the observer with convtrace_start; both get the
/// same engine. Nothing is printed or created unless a setting is wrong.
///
/// Threads:  any.
/// Errors:   none reach the host.

#include <atomic>
#include <cstdint>

#include "cupti/interceptor.h"
#include "format/settings/settings.h"
#include "interposer/core/control/output_name.h"

namespace convtrace::engine {

class Engine;

/// Starts the engine if it was not started before. @return it, or null if this process is not
/// traced.
Engine* start_engine() noexcept;

/// Closes the trace within two seconds; nothing is recorded afterwards.
void end_tracing() noexcept;

/// Registers the exit handler again, so that tracing ends before the driver does: exit handlers run
/// in reverse order of registration, and the driver registers its own in cuInit. Called by cupti/:
/// see InterceptorOptions.
void end_before_driver() noexcept;

/// @return the engine; null before start_engine(), and in a fork child that must not be traced.
Engine* running_engine() noexcept;

/// Limits warnings and notices in the log to the first traced rank of the job.
void speak_as(const settings::Settings& settings, const Rank& rank) noexcept;

/// Position of the calling thread, for cupti/.
cupti::Position current_position() noexcept;

/// Whether CONVTRACE_INCLUDE and CONVTRACE_EXCLUDE select the kernel, for cupti/.
bool is_kernel_wanted(format::KernelId kernel) noexcept;

/// Applies the reports of allocators, for cupti/: see InterceptorOptions.
bool apply_reported_memory(bool all) noexcept;

/// The program has created its first context, for cupti/.
void note_context() noexcept;

/// @return the preload library's switch for reports of CPU tensors; null where it is not loaded.
std::atomic<int>* cpu_reports() noexcept;

/// Records the call stack of a launch of the calling thread, for cupti/.
void note_launch_stack() noexcept;

/// Notes, for the preload library and for `convtrace run`, that the user has a trace or was told
/// why not.
void mark_explained() noexcept;

/// Logs which memory poison and quarantine do not cover in a program that uses CUDA.
void say_uncovered_memory(const settings::Settings& settings);

/// Publishes the engine's functions in the preload library's table (hooks_v1.h), if there is one.
/// @return false if another copy of the engine has published its own.
bool publish_hooks() noexcept;

}  // namespace convtrace::engine

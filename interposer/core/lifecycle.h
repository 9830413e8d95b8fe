#pragma once
/// @file lifecycle.h
/// How the process gets its one engine, and how it loses it: start, fork, exit.
///
/// Both ways in (InitializeInjection by the driver, convtrace_start by the observer) lead to the
/// same engine, armed once. Nothing is printed or created unless a setting is wrong.
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

/// Arms the engine if nobody did. @return it, or null when tracing is off here.
Engine* start_engine() noexcept;

/// Closes the trace, within two seconds; nothing is recorded from then on.
void end_tracing() noexcept;

/// Registers the exit handler again, so that tracing ends before the driver does: exit handlers run
/// in reverse order of registration, and the driver registers its own in cuInit. For cupti/: see
/// InterceptorOptions.
void end_before_driver() noexcept;

/// @return the engine, or null before start_engine() and in a fork child that may not go on.
Engine* running_engine() noexcept;

/// Lets only the first traced rank of a job log warnings and notices.
void speak_as(const settings::Settings& settings, const Rank& rank) noexcept;

/// Position of the calling thread, for cupti/.
cupti::Position current_position() noexcept;

/// Whether CONVTRACE_INCLUDE and CONVTRACE_EXCLUDE leave the kernel in, for cupti/.
bool is_kernel_wanted(format::KernelId kernel) noexcept;

/// Judges what allocators have reported, for cupti/: see InterceptorOptions.
bool apply_reported_memory(bool all) noexcept;

/// The program has its first context, for cupti/.
void note_context() noexcept;

/// @return the preload library's switch for reports of CPU tensors; null where it is not loaded.
std::atomic<int>* cpu_reports() noexcept;

/// Records where the calling thread makes a launch, for cupti/.
void note_launch_stack() noexcept;

/// Tells the preload library and the command of `convtrace run` that the user has a trace, or knows
/// why not.
void mark_explained() noexcept;

/// Says what poison and quarantine do not reach in a program that uses CUDA.
void say_uncovered_memory(const settings::Settings& settings);

/// Puts our functions into the preload library's table (hooks_v1.h), if there is one.
/// @return false if another copy of the engine was there first.
bool publish_hooks() noexcept;

}  // namespace convtrace::engine

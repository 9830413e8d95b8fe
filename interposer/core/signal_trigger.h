#pragma once
/// @file signal_trigger.h
/// Triggers `signal` and `USR2` of the flight recorder.
///
/// `signal` are those by which a job is stopped or dies (INT, TERM, QUIT, HUP; SEGV, BUS, FPE, ILL,
/// ABRT). What the program had set for a signal runs after ours, with the same arguments; what it
/// sets later replaces ours. USR2 by itself would end a program: ours only writes.
///
/// Threads:  a handler runs on any thread, and does nothing but set words and sleep.
/// Errors:   a handler waits for the writer thread half a second at most, then the signal takes its
///           course.

#include "format/settings/setting_values.h"
#include "interposer/core/writer/writer_thread.h"

namespace convtrace::engine {

/// Installs what `ring` asks for. @param writer  lives as long as the process.
void install_signal_triggers(WriterThread& writer, const settings::Ring& ring) noexcept;

}  // namespace convtrace::engine

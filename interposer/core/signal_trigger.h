#pragma once
/// @file signal_trigger.h
/// Triggers `signal` and `USR2` of the flight recorder.
///
/// `signal` covers the signals that stop a job or kill it (INT, TERM, QUIT, HUP; SEGV, BUS, FPE,
/// ILL, ABRT). A handler that the program had installed runs after convtrace's, with the same
/// arguments; one that it installs later replaces convtrace's. USR2 would end a program without a
/// handler: convtrace's handler only writes the trace.
///
/// Threads:  a handler runs on any thread; it only stores words and sleeps.
/// Errors:   a handler waits at most half a second for the writer thread, then the signal takes its
///           normal effect.

#include "format/settings/setting_values.h"
#include "interposer/core/writer/writer_thread.h"

namespace convtrace::engine {

/// Installs the handlers that `ring` asks for. @param writer  lives as long as the process.
void install_signal_triggers(WriterThread& writer, const settings::Ring& ring) noexcept;

}  // namespace convtrace::engine

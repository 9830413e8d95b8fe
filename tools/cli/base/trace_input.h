#pragma once
/// @file trace_input.h
/// Opens a trace for a command and says on stderr what is wrong with it.

#include <memory>
#include <string>

#include "reader/trace_reader.h"
#include "tools/common/exit_code.h"

namespace convtrace::tools {

/// Threads that a command decodes with.
[[nodiscard]] unsigned decode_threads();

/// @return the reader, or null after one line on stderr.
[[nodiscard]] std::unique_ptr<reader::TraceReader> open_trace(
    const std::string& path, reader::OpenPolicy policy = reader::OpenPolicy::kIndexOrScan);

/// Says on stderr what is wrong with a trace. Call after the last event: only then is the state
/// final.
/// @return kClean for a complete trace, else kDamagedInput.
[[nodiscard]] ExitCode report_state(const reader::TraceReader& trace, const std::string& path);
[[nodiscard]] ExitCode report_state(const reader::TraceContainer& trace,
                                    uint64_t events_without_definition, const std::string& path);

/// One line on stderr about `path`.
void complain(const std::string& path, const std::string& text);

}  // namespace convtrace::tools

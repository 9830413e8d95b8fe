#pragma once
/// @file trace_input.h
/// Opens a trace for a command and reports its problems on stderr.

#include <memory>
#include <string>

#include "reader/trace_reader.h"
#include "tools/common/exit_code.h"

namespace convtrace::tools {

/// @return the number of threads for decoding.
[[nodiscard]] unsigned decode_threads();

/// @return the reader, or null after one line on stderr.
[[nodiscard]] std::unique_ptr<reader::TraceReader> open_trace(
    const std::string& path, reader::OpenPolicy policy = reader::OpenPolicy::kIndexOrScan);

/// Reports the problems of a trace on stderr. Call after the last event, when the state is final.
/// @return kClean for a complete trace, else kDamagedInput.
[[nodiscard]] ExitCode report_state(const reader::TraceReader& trace, const std::string& path);
[[nodiscard]] ExitCode report_state(const reader::TraceContainer& trace,
                                    uint64_t events_without_definition, const std::string& path);

}  // namespace convtrace::tools

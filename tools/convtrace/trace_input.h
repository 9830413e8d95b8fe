#pragma once
/// @file trace_input.h
/// Opens a trace for a command and says on stderr what is wrong with it.

#include <memory>
#include <string>

#include "reader/trace_reader.h"
#include "tools/common/exit_code.h"

namespace convtrace::tools {

/// @return the reader, or null after one line on stderr.
[[nodiscard]] std::unique_ptr<reader::TraceReader> open_trace(const std::string& path);

/// Call after the last event: only then is the state final. Says on stderr what is missing.
/// @return kClean for a complete trace, else kDamagedInput.
[[nodiscard]] ExitCode report_state(const reader::TraceReader& trace, const std::string& path);

}  // namespace convtrace::tools

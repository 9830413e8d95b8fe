#pragma once
/// @file trace_opener.h
/// Creates the file of this process's trace.
///
/// Threads:  the writer thread, once.
/// Errors:   one line says what is wrong and what to do; tracing is off then, the program goes on.

#include <string>

#include "format/model/definitions.h"
#include "format/model/meta.h"
#include "format/settings/settings.h"
#include "interposer/core/writer/writer_thread.h"

namespace convtrace::engine {

/// @param start_folder  where the program began: relative names are below it.
/// @param announced     by `convtrace run`, which says more.
/// @return a trace without a writer if there is none.
[[nodiscard]] OpenTrace create_trace(const settings::Settings& settings,
                                     const std::string& start_folder, bool announced,
                                     const format::TraceMeta& meta,
                                     format::Definitions& definitions);

}  // namespace convtrace::engine

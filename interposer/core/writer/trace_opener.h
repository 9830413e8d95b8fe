#pragma once
/// @file trace_opener.h
/// Creates the file of this process's trace.
///
/// Threads:  the writer thread, once.
/// Errors:   one line with cause and remedy; then tracing is off and the program continues. A file
///           that nothing could be written to is removed.

#include <memory>
#include <string>

#include "format/model/definitions.h"
#include "format/model/meta.h"
#include "format/settings/settings.h"
#include "interposer/core/writer/writer_thread.h"

namespace convtrace::engine {

/// @param file          opens the file, and has it from then on.
/// @param start_folder  in which the program was started; relative names are below it.
/// @param announced     started by `convtrace run`, for which more is printed.
/// @return a trace without a writer if the file could not be created.
[[nodiscard]] OpenTrace create_trace(std::shared_ptr<format::FileThread> file,
                                     const settings::Settings& settings,
                                     const std::string& start_folder, bool announced,
                                     const format::TraceMeta& meta,
                                     format::Definitions& definitions);

/// Renames the file to the name that the setting gives with `meta`, now that the rank is known.
/// @return whether it has that name; false: another file has it at present.
bool rename_trace(OpenTrace& trace, const settings::Settings& settings,
                  const std::string& start_folder, const format::TraceMeta& meta);

}  // namespace convtrace::engine

#pragma once
/// @file nan_origin.h
/// Says of the origin of a NaN where its code is, and which command shows more.
///
/// Threads:  one.

#include <string>

#include "reader/trace_reader.h"
#include "tools/cli/read/nan_search.h"
#include "tools/cli/read/nan_steps.h"

namespace convtrace::tools {

struct NanOrigin {
  std::string code{};  ///< class, file and line of the module, the line that calls it; escaped
  std::string next{};  ///< a command for the shell
};

/// Reads the trace again, up to the origin. @param path  of the trace
[[nodiscard]] NanOrigin origin_of(reader::TraceReader& trace, const Seen& birth,
                                  const NanFound& found, const std::string& path);

}  // namespace convtrace::tools

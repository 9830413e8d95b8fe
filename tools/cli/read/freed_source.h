#pragma once
/// @file freed_source.h
/// Finds the owner of the freed memory that a value with the pattern of CONVTRACE_POISON was read
/// from.
///
/// Only recorded memory is known: the value's own, or else an earlier input of the same op or
/// module that was freed since. Among several the one that was freed last is chosen.

#include <optional>
#include <string>

#include "reader/trace_reader.h"
#include "tools/cli/read/nan_search.h"

namespace convtrace::tools {

struct FreedSource {
  Seen value;          ///< the last record in that memory
  bool own = false;    ///< it is the memory of the value itself
  format::Free freed;  ///< its stack is empty where frees have none
};

/// Reads the trace again, up to the value.
[[nodiscard]] std::optional<FreedSource> find_freed_source(reader::TraceReader& trace,
                                                           const Seen& value);

/// Sentences for people, escaped.
[[nodiscard]] std::string freed_text(const std::optional<FreedSource>& source,
                                     const reader::TraceReader& trace);

}  // namespace convtrace::tools

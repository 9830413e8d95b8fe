#pragma once
/// @file freed_source.h
/// Whose memory a value was read from that holds what CONVTRACE_POISON writes into freed memory.
///
/// Known is what was recorded: the value's own memory, or else what the same op, or module, had
/// taken before and was freed since. Of several the one that was freed last.

#include <optional>
#include <string>

#include "reader/trace_reader.h"
#include "tools/cli/read/nan_search.h"

namespace convtrace::tools {

struct FreedSource {
  Seen value;          ///< as it was last recorded there
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

#pragma once
/// @file record_text.h
/// Converts records of a trace to lines for people. All contents of a trace are escaped.
///
/// Threads:  pure functions.

#include <string>
#include <vector>

#include "format/model/definitions.h"
#include "format/model/events.h"

namespace convtrace::tools {

/// The headers of the columns in event_line().
[[nodiscard]] std::string event_line_header();

/// One line: seq, time, step, record, place, details.
/// @param start_ns  the time to show as 0, on the clock of the events.
[[nodiscard]] std::string event_line(const format::Event& event,
                                     const format::Definitions& definitions, uint64_t start_ns);

/// A name, escaped.
[[nodiscard]] std::string name_text(const format::Definitions& definitions, format::StringId id);

/// A kernel's name, demangled and escaped.
[[nodiscard]] std::string kernel_text(const format::Definitions& definitions, format::KernelId id);

/// "forward h.0.mlp#2"; the root module is ".", code outside any module "-".
[[nodiscard]] std::string place_text(const format::Definitions& definitions,
                                     const format::Place& place);

/// Frames of a finding's call stacks, innermost first.
struct Stacks {
  std::vector<std::string> alloc, launch, free;
  bool all_taken = false;  ///< CONVTRACE_STACKS=all: what has no stack could not have one
};

/// A finding as a paragraph with its three stacks, without a line end.
[[nodiscard]] std::string finding_paragraph(const format::Finding& finding, const Stacks& stacks,
                                            const format::Definitions& definitions);

}  // namespace convtrace::tools

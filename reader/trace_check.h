#pragma once
/// @file trace_check.h
/// Checks every checksum and every rule of the format; a reader checks only those it relies on.
///
/// Place:    `convtrace verify`.
/// Threads:  one owner thread.
/// Memory:   as trace_reader.h, and no index.
/// Errors:   violations are added to TraceCheckResult::problems with their offsets.
/// Source:   format/FORMAT.md sections 2 to 7.

#include "reader/byte_source.h"
#include "reader/problem.h"

namespace convtrace::reader {

struct TraceCheckResult {
  ProblemList problems;
  uint64_t records = 0;
  uint64_t events = 0;
  uint64_t cut_bytes = 0;  ///< at the end, not part of a whole record
  bool closed = false;     ///< a footer ends the file
};

/// @return a status if the file cannot be read at all, as TraceReader::open.
[[nodiscard]] Result<TraceCheckResult> check_trace(const ByteSource& source);

}  // namespace convtrace::reader

#pragma once
/// @file trace_check.h
/// Every checksum and every rule of the format, where reading needs only those it relies on.
///
/// Place:    `convtrace verify`.
/// Threads:  one owner thread.
/// Memory:   as trace_reader.h, and no index.
/// Errors:   what is wrong goes to TraceCheckResult::problems with its offset.
/// Source:   format/FORMAT.md sections 2 to 7.

#include "reader/byte_source.h"
#include "reader/problem.h"

namespace convtrace::reader {

struct TraceCheckResult {
  ProblemList problems;
  uint64_t records = 0;
  uint64_t events = 0;
  uint64_t cut_bytes = 0;  ///< at the end, of no whole record
  bool closed = false;     ///< a footer ends the file
};

/// @return the status that keeps the file from being read at all, as TraceReader::open.
[[nodiscard]] Result<TraceCheckResult> check_trace(const ByteSource& source);

}  // namespace convtrace::reader

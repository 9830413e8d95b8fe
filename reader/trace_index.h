#pragma once
/// @file trace_index.h
/// Where the records of a trace are: from its index when that can be believed, else by a scan.
///
/// Place:    trace_container.cpp.
/// Errors:   damage goes to the ProblemList; no index is not damage.
/// Source:   format/FORMAT.md section 7.

#include <vector>

#include "format/file/layout.h"
#include "reader/byte_source.h"
#include "reader/payload_reader.h"
#include "reader/problem.h"

namespace convtrace::reader {

struct TraceIndex {
  std::vector<format::RecordEntry> entries;  ///< ascending, without INDEX and FOOTER
  bool closed = false;                       ///< a footer ends the file
  uint64_t lost_records = 0;
  uint64_t cut_bytes = 0;  ///< at the end, of no whole record

  /// Takes what a scan has found next.
  void add(const format::RecordEntry& entry);
};

/// @return nothing unless footer and index are there and agree with each other and with the file's
/// size.
[[nodiscard]] std::optional<TraceIndex> load_index(const ByteSource& source, uint32_t file_tag,
                                                   ProblemList& problems);

[[nodiscard]] TraceIndex scan_index(const ByteSource& source, uint32_t file_tag,
                                    ProblemList& problems);

}  // namespace convtrace::reader

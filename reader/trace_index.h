#pragma once
/// @file trace_index.h
/// Finds the records of a trace: from its index if that is valid, else by a scan.
///
/// Place:    trace_container.cpp.
/// Errors:   damage is added to the ProblemList; a missing index is no damage.
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
  uint64_t cut_bytes = 0;  ///< at the end, not part of a whole record

  /// Adds a record that a scan has found.
  void add(const format::RecordEntry& entry);
};

/// @return nothing unless footer and index exist and agree with each other and with the file's
/// size.
[[nodiscard]] std::optional<TraceIndex> load_index(const ByteSource& source, uint32_t file_tag,
                                                   ProblemList& problems);

[[nodiscard]] TraceIndex scan_index(const ByteSource& source, uint32_t file_tag,
                                    ProblemList& problems);

}  // namespace convtrace::reader

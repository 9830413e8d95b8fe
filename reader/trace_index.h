#pragma once
/// @file trace_index.h
/// Decides whether a file is a readable trace, and finds its records: from its index if that is valid,
/// else by a scan.
///
/// Place:    trace_container.cpp; trace_check.cpp, which uses identify() alone.
/// Errors:   damage is added to the ProblemList; a missing index is no damage.
/// Source:   format/FORMAT.md sections 2 and 7.

#include <optional>
#include <vector>

#include "format/file/layout.h"
#include "reader/byte_source.h"
#include "reader/payload_reader.h"
#include "reader/problem.h"

namespace convtrace::reader {

struct FileIdentity {
  std::optional<format::FileHeader> header;  ///< nullopt: it is damaged
  uint32_t file_tag = 0;
};

/// @return kNotATrace, kUnsupportedVersion (detail: major), kUnsupportedFeature (detail: bit),
/// kIoError, kEmpty, kTruncated (shorter than a file header).
[[nodiscard]] Result<FileIdentity> identify(const ByteSource& source);

/// @return kUnsupportedFeature (detail: bit) if a feature is not known here.
[[nodiscard]] Status check_features(uint32_t required_features);

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

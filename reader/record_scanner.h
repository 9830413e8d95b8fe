#pragma once
/// @file record_scanner.h
/// Finds the records of a trace by walking it from the front, whatever has happened to it.
///
/// Place:    trace_index.cpp, when there is no usable index.
/// Threads:  one owner thread. Memory: one 256 KiB window.
/// Errors:   none: damage goes to the ProblemList and the walk goes on. Payloads are not read: a
/// record whose
///           header is good is passed by its length, which the header's checksum vouches for, so
///           the work is linear in the file's size.
/// Source:   format/FORMAT.md section 7.

#include <optional>

#include "format/record_codec.h"
#include "reader/byte_source.h"
#include "reader/problem.h"

namespace convtrace::reader {

class RecordScanner {
 public:
  /// @param source, problems  borrowed for the scanner's life.
  RecordScanner(const ByteSource& source, uint32_t file_tag, ProblemList& problems)
      : source_(source), file_tag_(file_tag), problems_(problems) {}

  /// @return the next record of this trace in file order, or nothing at the end.
  std::optional<format::RecordEntry> next();

  /// @return records that must have stood in skipped parts, by the gaps in record numbers.
  [[nodiscard]] uint64_t lost_records() const { return lost_records_; }

 private:
  /// @return the slot at `offset`, or null at the end of the file; reads `ahead` bytes at a time.
  const std::byte* slot(uint64_t offset, size_t ahead);
  std::optional<format::RecordHeader> header_at(uint64_t offset, uint64_t skipped, size_t ahead);
  void report_skipped(uint64_t begin, uint64_t end);

  const ByteSource& source_;
  const uint32_t file_tag_;
  ProblemList& problems_;
  uint64_t offset_ = format::kSlotBytes;
  uint64_t next_seq_ = 0;
  uint64_t lost_records_ = 0;
  std::vector<std::byte> window_;
  uint64_t window_offset_ = 0;
};

/// For a trace whose file header is damaged: the tag that most of the valid record headers in its
/// first MiB carry.
/// @return nothing when there are none: it is not a trace.
[[nodiscard]] std::optional<uint32_t> majority_file_tag(const ByteSource& source);

}  // namespace convtrace::reader

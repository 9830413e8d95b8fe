#pragma once
/// @file record_scanner.h
/// Finds the records of a trace by walking it from the front, whatever has happened to it.
///
/// Place:    trace_index.cpp when there is no usable index, live files, trace_check.cpp.
/// Threads:  one owner thread.
/// Memory:   one 256 KiB window.
/// Errors:   none: damage goes to the ProblemList and the walk goes on. Payloads are not read: a
///           record whose header is good is passed by its length, which the header's checksum
///           vouches for, so the work is linear in the file's size.
/// Source:   format/FORMAT.md section 7.

#include <optional>

#include "format/file/record_codec.h"
#include "reader/byte_source.h"
#include "reader/problem.h"

namespace convtrace::reader {

class RecordScanner {
 public:
  /// @param source, problems  borrowed for the scanner's life.
  RecordScanner(const ByteSource& source, uint32_t file_tag, ProblemList& problems)
      : source_(source), file_tag_(file_tag), problems_(problems) {}

  /// @return the next record of this trace in file order, or nothing at the end. What stands after
  /// the last record is judged by finish(); until then the file may grow, and next() goes on.
  std::optional<format::RecordEntry> next();

  /// After the last next(): nothing will be appended any more. Tells a damaged end from a cut one.
  void finish();

  /// @return records that must have stood in skipped parts, by the gaps in record numbers.
  [[nodiscard]] uint64_t lost_records() const { return lost_records_; }
  /// @return bytes of a record that was cut short, or of space never written, at the end. Known
  /// after finish().
  [[nodiscard]] uint64_t cut_bytes() const { return cut_bytes_; }

 private:
  /// What follows the last record.
  struct Tail {
    uint64_t damage_end = 0;  ///< damage ends here; a cut record or nothing but zeros follows
    uint64_t lost_records = 0;
  };

  /// @return the slot at `offset`, or null at the end of the file; reads `ahead` bytes at a time.
  const std::byte* slot(uint64_t offset, size_t ahead);
  std::optional<format::RecordHeader> header_at(uint64_t offset, uint64_t skipped, size_t ahead);
  /// Passes over what is no record, from `begin`. @return the header at offset_, or nothing at the
  /// end; then tail_ says how it ends.
  std::optional<format::RecordHeader> search(uint64_t begin);
  void report_skipped(uint64_t begin, uint64_t end);

  const ByteSource& source_;
  const uint32_t file_tag_;
  ProblemList& problems_;
  uint64_t offset_ = format::kSlotBytes;
  uint64_t next_seq_ = 0;
  uint64_t lost_records_ = 0;
  uint64_t cut_bytes_ = 0;
  bool unreadable_ = false;  ///< a part of what is being passed over
  Tail tail_;
  std::vector<std::byte> window_;
  uint64_t window_offset_ = 0;
};

/// For a trace whose file header is damaged: the tag that most of the valid record headers in its
/// first MiB carry. Payloads are passed over: what is stored in them has no vote.
/// @return nothing when there are none: it is not a trace.
[[nodiscard]] std::optional<uint32_t> majority_file_tag(const ByteSource& source);

}  // namespace convtrace::reader

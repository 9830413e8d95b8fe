#pragma once
/// @file record_scanner.h
/// Finds the records of a trace by scanning it from the start, whatever its state.
///
/// Place:    trace_index.cpp when there is no usable index, live files, trace_check.cpp.
/// Threads:  one owner thread.
/// Memory:   one 256 KiB window.
/// Errors:   none: damage is added to the ProblemList and the scan continues. Payloads are not
///           read. A record with a valid header is skipped by its length, which the header's
///           checksum covers, so the time is linear in the file's size.
/// Source:   format/FORMAT.md section 7.

#include <optional>

#include "format/file/record_codec.h"
#include "reader/byte_source.h"
#include "reader/problem.h"

namespace convtrace::reader {

class RecordScanner {
 public:
  /// @param source, problems  borrowed for the lifetime of the scanner.
  RecordScanner(const ByteSource& source, uint32_t file_tag, ProblemList& problems)
      : source_(source), file_tag_(file_tag), problems_(problems) {}

  /// @return the next record of this trace in file order; nothing at the end. The rest behind the
  /// last record is judged by finish(); until then the file may grow and next() continues.
  std::optional<format::RecordEntry> next();

  /// Call after the last next(), when nothing will be appended any more. Distinguishes a damaged
  /// end from a truncated one.
  void finish();

  /// @return the number of records that lay in skipped parts, from the gaps in record numbers.
  [[nodiscard]] uint64_t lost_records() const { return lost_records_; }
  /// @return the bytes at the end of a record that was truncated, or of space that was never
  /// written. Known after finish().
  [[nodiscard]] uint64_t cut_bytes() const { return cut_bytes_; }

 private:
  /// The bytes behind the last record.
  struct Tail {
    uint64_t damage_end = 0;  ///< end of the damage; only a truncated record or zeros follow
    uint64_t lost_records = 0;
  };

  /// @return the slot at `offset`, or null at the end of the file; reads `ahead` bytes at a time.
  const std::byte* slot(uint64_t offset, size_t ahead);
  std::optional<format::RecordHeader> header_at(uint64_t offset, uint64_t skipped, size_t ahead);
  /// Skips bytes that are no record, from `begin` on. @return the header at offset_; nothing at the
  /// end of the file, where tail_ describes the rest.
  std::optional<format::RecordHeader> search(uint64_t begin);
  void report_skipped(uint64_t begin, uint64_t end);

  const ByteSource& source_;
  const uint32_t file_tag_;
  ProblemList& problems_;
  uint64_t offset_ = format::kSlotBytes;
  uint64_t next_seq_ = 0;
  uint64_t lost_records_ = 0;
  uint64_t cut_bytes_ = 0;
  bool unreadable_ = false;  ///< part of the skipped bytes cannot be read
  Tail tail_;
  std::vector<std::byte> window_;
  uint64_t window_offset_ = 0;
};

/// For a trace with a damaged file header: the tag that most valid record headers in its first MiB
/// have. Payloads are skipped, so that headers stored inside values do not count.
/// @return nothing if there is no valid header: the file is no trace.
/// @return nothing when there are none: it is not a trace.
[[nodiscard]] std::optional<uint32_t> majority_file_tag(const ByteSource& source);

}  // namespace convtrace::reader

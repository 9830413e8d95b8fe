#pragma once
/// @file record_writer.h
/// Appends records to a Sink: computes checksums, compresses, pads and numbers them, and builds the
/// index.
///
/// Place:    the lower half of trace_writer.cpp, which decides on the contents of records.
/// Threads:  one owner thread.
/// Errors:   sticky: after the first failure every call returns the same Status and writes nothing.
/// Source:   format/FORMAT.md sections 2, 3 and 7.

#include <memory>
#include <vector>

#include "format/base/compressor.h"
#include "format/file/layout.h"
#include "format/file/sink.h"

namespace convtrace::format {

class RecordWriter {
 public:
  explicit RecordWriter(std::unique_ptr<Sink> sink) : sink_(std::move(sink)) {}

  [[nodiscard]] Status write_file_header(const FileHeader& header);

  /// Appends one record.
  /// @param header  kind, flags, times, steps and item_count; the rest is filled in.
  /// @param raw     payload before compression, at most kMaxRecordBytes; read during the call.
  [[nodiscard]] Status write(RecordHeader header, Bytes raw);

  /// Appends a record of another trace in its stored form. @param header  from that trace; its seq
  /// and file_tag are replaced.
  [[nodiscard]] Status write_stored(RecordHeader header, Bytes stored);

  /// Appends INDEX records for all records written so far, and the footer.
  [[nodiscard]] Status write_index_and_footer(uint64_t event_count);

  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] uint64_t bytes_written() const { return sink_->size(); }

  /// Makes all later calls return `status`.
  Status fail(Status status) { return status_ = status; }

 private:
  Status append(Bytes a, Bytes b);
  /// Stores the compressed form of `raw` in payload_ and describes it in `header`.
  Status pack(RecordHeader& header, Bytes raw);
  /// Appends `header` and payload_, padded to whole slots.
  Status append_record(RecordHeader header);

  std::unique_ptr<Sink> sink_;
  Status status_;
  Compressor compressor_;
  std::vector<std::byte> payload_;
  std::vector<RecordEntry> index_;
  uint64_t next_seq_ = 0;
  uint32_t file_tag_ = 0;
};

}  // namespace convtrace::format

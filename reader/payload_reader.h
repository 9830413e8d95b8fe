#pragma once
/// @file payload_reader.h
/// Reads, checks and decompresses the payload of one record.
///
/// Threads:  one owner thread.
/// Memory:   one stored and one raw payload, at most 64 MiB each.
/// Errors:   Status; nothing is decoded before its checksum holds.

#include <optional>

#include "format/base/compressor.h"
#include "format/file/record_codec.h"
#include "reader/byte_source.h"

namespace convtrace::reader {

class PayloadReader {
 public:
  explicit PayloadReader(const ByteSource& source) : source_(source) {}

  /// @return the raw payload, valid until the next call; kCorrupt (checksum, frame),
  /// kUnsupportedFeature (codec or reserved flag), kTruncated, kIoError. detail: the record's
  /// offset.
  [[nodiscard]] Result<Bytes> read(const format::RecordEntry& entry);

  /// The payload as it is stored, its checksum checked. Valid and failing as read() is.
  [[nodiscard]] Result<Bytes> read_stored(const format::RecordEntry& entry);

  /// @return the stored payload of the record last read.
  [[nodiscard]] Bytes stored() const { return Bytes(record_).subspan(format::kSlotBytes); }

  /// @return whether the record last read has in the file the header that its entry states. If not,
  /// the entry came from the index and the file's own copy is damaged; the payload may be good all
  /// the same.
  [[nodiscard]] bool header_intact() const { return header_intact_; }

 private:
  const ByteSource& source_;
  format::Decompressor decompressor_;
  std::vector<std::byte>
      record_;  ///< header and stored payload, which so begins 64 bytes in: aligned
  std::vector<std::byte> raw_;
  bool header_intact_ = true;
};

}  // namespace convtrace::reader

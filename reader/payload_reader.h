#pragma once
/// @file payload_reader.h
/// Reads, checks and decompresses the payload of one record.
///
/// Threads:  one owner thread.
/// Memory:   one stored and one raw payload, at most 64 MiB each.
/// Errors:   Status; nothing is decoded before its checksum was verified.

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

  /// Reads the stored payload and verifies its checksum. Validity and errors as read().
  [[nodiscard]] Result<Bytes> read_stored(const format::RecordEntry& entry);

  /// @return the stored payload of the record that was read last.
  [[nodiscard]] Bytes stored() const { return Bytes(record_).subspan(format::kSlotBytes); }

  /// @return whether the header of the last record in the file is the one in its entry. If not, the
  /// entry came from the index and the file's own copy is damaged; the payload may be good
  /// nevertheless.
  [[nodiscard]] bool header_intact() const { return header_intact_; }

 private:
  const ByteSource& source_;
  format::Decompressor decompressor_;
  /// Header and stored payload, which so begins 64 bytes in: aligned.
  std::vector<std::byte> record_;
  std::vector<std::byte> raw_;
  bool header_intact_ = true;
};

}  // namespace convtrace::reader

#include "reader/payload_reader.h"

#include <algorithm>

#include "format/base/checksum.h"

namespace convtrace::reader {

Result<Bytes> PayloadReader::read_stored(const format::RecordEntry& entry) {
  const format::RecordHeader& header = entry.header;
  const auto offset = static_cast<int64_t>(entry.offset);
  if ((header.flags & format::kReservedFlags) != 0)
    return Status::make(StatusCode::kUnsupportedFeature, "flags", offset);
  record_.resize(format::kSlotBytes + header.stored_size);  // bounded by decode_record_header
  CONVTRACE_TRY(source_.read(entry.offset, record_));
  const format::Slot expected = format::encode(header);
  header_intact_ = std::equal(expected.begin(), expected.end(), record_.begin());
  if (checksum32(stored()) != header.payload_checksum)
    return Status::make(StatusCode::kCorrupt, "payload checksum", offset);
  return stored();
}

Result<Bytes> PayloadReader::read(const format::RecordEntry& entry) {
  const format::RecordHeader& header = entry.header;
  const auto offset = static_cast<int64_t>(entry.offset);
  const Result<Bytes> stored = read_stored(entry);
  if (!stored.ok()) return stored;
  switch (header.codec) {
    case format::Codec::kNone:
      if (header.raw_size != header.stored_size) break;
      return stored;
    case format::Codec::kZstd: {
      raw_.resize(header.raw_size);
      if (!decompressor_.decompress_exact(stored.value(), raw_).ok()) break;
      return Bytes(raw_);
    }
    default: return Status::make(StatusCode::kUnsupportedFeature, "codec", offset);
  }
  return Status::make(StatusCode::kCorrupt, "payload", offset);
}

}  // namespace convtrace::reader

#include "format/file/record_codec.h"

#include <algorithm>
#include <cstring>

#include "format/base/checksum.h"

namespace convtrace::format {
namespace {

constexpr std::array<uint8_t, 8> kMagic = {0x89, 'C', 'T', 'R', '\r', '\n', 0x1A, '\n'};
constexpr std::array<uint8_t, 4> kSync = {0xE5, 'C', 'T', 'R'};
constexpr size_t kChecksumAt = 60;  // last field of all three structures

// Field offsets of FileHeader.
constexpr size_t kFileMajor = 8, kFileMinor = 10, kFileHeaderBytes = 12, kFileUuid = 16,
                 kFileRealtime = 32, kFileMonotonic = 40, kFileRequired = 48, kFileOptional = 52,
                 kFileTag = 56;
// Field offsets of RecordHeader.
constexpr size_t kKind = 4, kCodec = 6, kFlags = 7, kStoredSize = 8, kRawSize = 12, kSeq = 16,
                 kTimeBegin = 24, kTimeEnd = 32, kStepBegin = 40, kStepEnd = 44, kItemCount = 48,
                 kTag = 52, kPayloadChecksum = 56;
// Field offsets of FOOTER where they differ from RecordHeader's.
constexpr size_t kIndexOffset = 24, kDataEnd = 32, kEventCount = 40, kRecordCount = 48;

uint32_t header_checksum(SlotView bytes) noexcept { return checksum32(bytes.first(kChecksumAt)); }

void seal(Slot& slot) noexcept { store_le(slot.data() + kChecksumAt, header_checksum(slot)); }

bool is_sealed(SlotView bytes) noexcept {
  return load_le<uint32_t>(bytes.data() + kChecksumAt) == header_checksum(bytes);
}

}  // namespace

uint32_t file_tag_of(const std::array<uint8_t, 16>& uuid) noexcept {
  return checksum32(bytes_of(uuid));
}

Slot encode(const FileHeader& header) noexcept {
  Slot slot{};
  std::byte* to = slot.data();
  std::memcpy(to, kMagic.data(), kMagic.size());
  store_le(to + kFileMajor, header.version_major);
  store_le(to + kFileMinor, header.version_minor);
  store_le(to + kFileHeaderBytes, header.header_bytes);
  std::memcpy(to + kFileUuid, header.uuid.data(), header.uuid.size());
  store_le(to + kFileRealtime, header.start_realtime_ns);
  store_le(to + kFileMonotonic, header.start_monotonic_ns);
  store_le(to + kFileRequired, header.required_features);
  store_le(to + kFileOptional, header.optional_features);
  store_le(to + kFileTag, header.file_tag);
  seal(slot);
  return slot;
}

Slot encode(const RecordHeader& header) noexcept {
  Slot slot{};
  std::byte* to = slot.data();
  std::memcpy(to, kSync.data(), kSync.size());
  store_le(to + kKind, header.kind);
  store_le(to + kCodec, header.codec);
  store_le(to + kFlags, header.flags);
  store_le(to + kStoredSize, header.stored_size);
  store_le(to + kRawSize, header.raw_size);
  store_le(to + kSeq, header.seq);
  store_le(to + kTimeBegin, header.time_begin_ns);
  store_le(to + kTimeEnd, header.time_end_ns);
  store_le(to + kStepBegin, header.step_begin);
  store_le(to + kStepEnd, header.step_end);
  store_le(to + kItemCount, header.item_count);
  store_le(to + kTag, header.file_tag);
  store_le(to + kPayloadChecksum, header.payload_checksum);
  seal(slot);
  return slot;
}

Slot encode(const Footer& footer) noexcept {
  Slot slot{};
  std::byte* to = slot.data();
  std::memcpy(to, kSync.data(), kSync.size());
  store_le(to + kKind, RecordKind::kFooter);
  store_le(to + kSeq, footer.seq);
  store_le(to + kIndexOffset, footer.index_offset);
  store_le(to + kDataEnd, footer.data_end);
  store_le(to + kEventCount, footer.event_count);
  store_le(to + kRecordCount, footer.record_count);
  store_le(to + kTag, footer.file_tag);
  store_le(to + kPayloadChecksum, checksum32({}));
  seal(slot);
  return slot;
}

bool has_magic(Bytes bytes) noexcept {
  return std::memcmp(bytes.data(), kMagic.data(), std::min(bytes.size(), kMagic.size())) == 0;
}

Result<FileHeader> decode_file_header(SlotView bytes) noexcept {
  const std::byte* from = bytes.data();
  if (!has_magic(bytes)) return Status::make(StatusCode::kNotATrace, "FileHeader");
  FileHeader header;
  header.version_major = load_le<uint16_t>(from + kFileMajor);
  header.version_minor = load_le<uint16_t>(from + kFileMinor);
  header.header_bytes = load_le<uint32_t>(from + kFileHeaderBytes);
  if (header.version_major != kVersionMajor)
    return Status::make(StatusCode::kUnsupportedVersion, "FileHeader", header.version_major);
  if (!is_sealed(bytes) || header.header_bytes != kSlotBytes)
    return Status::make(StatusCode::kCorrupt, "FileHeader");
  std::memcpy(header.uuid.data(), from + kFileUuid, header.uuid.size());
  header.start_realtime_ns = load_le<uint64_t>(from + kFileRealtime);
  header.start_monotonic_ns = load_le<uint64_t>(from + kFileMonotonic);
  header.required_features = load_le<uint32_t>(from + kFileRequired);
  header.optional_features = load_le<uint32_t>(from + kFileOptional);
  header.file_tag = load_le<uint32_t>(from + kFileTag);
  return header;
}

std::optional<RecordHeader> decode_record_header(SlotView bytes) noexcept {
  const std::byte* from = bytes.data();
  if (std::memcmp(from, kSync.data(), kSync.size()) != 0 || !is_sealed(bytes)) return std::nullopt;
  RecordHeader header;
  header.kind = load_le<RecordKind>(from + kKind);
  header.codec = load_le<Codec>(from + kCodec);
  header.flags = load_le<uint8_t>(from + kFlags);
  header.stored_size = load_le<uint32_t>(from + kStoredSize);
  header.raw_size = load_le<uint32_t>(from + kRawSize);
  header.seq = load_le<uint64_t>(from + kSeq);
  header.time_begin_ns = load_le<uint64_t>(from + kTimeBegin);
  header.time_end_ns = load_le<uint64_t>(from + kTimeEnd);
  header.step_begin = load_le<uint32_t>(from + kStepBegin);
  header.step_end = load_le<uint32_t>(from + kStepEnd);
  header.item_count = load_le<uint32_t>(from + kItemCount);
  header.file_tag = load_le<uint32_t>(from + kTag);
  header.payload_checksum = load_le<uint32_t>(from + kPayloadChecksum);
  const bool sizes_fit =
      header.stored_size <= kMaxRecordBytes && header.raw_size <= kMaxRecordBytes;
  if (!sizes_fit || header.kind == RecordKind::kInvalid) return std::nullopt;
  return header;
}

std::optional<Footer> decode_footer(SlotView bytes) noexcept {
  const std::optional<RecordHeader> header = decode_record_header(bytes);
  if (!header || header->kind != RecordKind::kFooter) return std::nullopt;
  const std::byte* from = bytes.data();
  Footer footer;
  footer.seq = header->seq;
  footer.index_offset = load_le<uint64_t>(from + kIndexOffset);
  footer.data_end = load_le<uint64_t>(from + kDataEnd);
  footer.event_count = load_le<uint64_t>(from + kEventCount);
  footer.record_count = load_le<uint32_t>(from + kRecordCount);
  footer.file_tag = header->file_tag;
  return footer;
}

}  // namespace convtrace::format

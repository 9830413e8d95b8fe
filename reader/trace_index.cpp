#include "reader/trace_index.h"

#include <algorithm>
#include <bit>

#include "format/file/record_codec.h"
#include "reader/record_scanner.h"

namespace convtrace::reader {
namespace {

using format::Footer;
using format::kIndexEntryBytes;
using format::kSlotBytes;
using format::RecordEntry;
using format::RecordKind;

std::optional<format::Slot> read_slot(const ByteSource& source, uint64_t offset) {
  format::Slot slot;
  if (!source.read(offset, slot).ok()) return std::nullopt;
  return slot;
}

std::optional<Footer> read_footer(const ByteSource& source, uint32_t file_tag) {
  const uint64_t size = source.size();
  if (size < 2 * kSlotBytes || size % kSlotBytes != 0) return std::nullopt;
  const auto slot = read_slot(source, size - kSlotBytes);
  if (!slot) return std::nullopt;
  const auto footer = format::decode_footer(*slot);
  const bool fits = footer && footer->file_tag == file_tag && kSlotBytes <= footer->data_end &&
                    footer->data_end <= footer->index_offset && footer->index_offset < size &&
                    footer->data_end % kSlotBytes == 0 && footer->index_offset % kSlotBytes == 0;
  return fits ? footer : std::nullopt;
}

/// Appends the entries of one INDEX payload. @return whether each one follows the one before it.
bool append_entries(Bytes raw, uint32_t file_tag, std::vector<RecordEntry>& entries) {
  for (; !raw.empty(); raw = raw.subspan(kIndexEntryBytes)) {
    const auto header =
        format::decode_record_header(format::SlotView(raw.data() + sizeof(uint64_t), kSlotBytes));
    if (!header || header->file_tag != file_tag || header->seq != entries.size()) return false;
    const RecordEntry entry{load_le<uint64_t>(raw.data()), *header};
    const uint64_t expected =
        entries.empty() ? kSlotBytes
                        : entries.back().offset + format::record_extent(entries.back().header);
    if (entry.offset != expected) return false;
    entries.push_back(entry);
  }
  return true;
}

/// @return whether the INDEX records from the footer's index_offset to the footer itself are good.
bool read_entries(const ByteSource& source, const Footer& footer,
                  std::vector<RecordEntry>& entries) {
  PayloadReader payloads(source);
  const uint64_t end = source.size() - kSlotBytes;
  for (uint64_t offset = footer.index_offset; offset < end;) {
    const auto slot = read_slot(source, offset);
    const auto header = slot ? format::decode_record_header(*slot) : std::nullopt;
    if (!header || header->kind != RecordKind::kIndex || header->file_tag != footer.file_tag)
      return false;
    if (header->raw_size != uint64_t{header->item_count} * kIndexEntryBytes) return false;
    const Result<Bytes> raw = payloads.read({offset, *header});
    if (!raw.ok() || !append_entries(raw.value(), footer.file_tag, entries)) return false;
    offset += format::record_extent(*header);
  }
  return true;
}

}  // namespace

Status check_features(uint32_t required_features) {
  const uint32_t unknown = required_features & ~format::kKnownRequiredFeatures;
  if (unknown == 0) return kOkStatus;
  return Status::make(StatusCode::kUnsupportedFeature, "required_features",
                      std::countr_zero(unknown));
}

Result<FileIdentity> identify(const ByteSource& source) {
  format::Slot slot{};
  const size_t available = static_cast<size_t>(std::min<uint64_t>(source.size(), slot.size()));
  const std::span<std::byte> head = std::span(slot).first(available);
  CONVTRACE_TRY(source.read(0, head));
  if (available == 0) return Status::make(StatusCode::kEmpty, "FileHeader");
  if (available < slot.size()) {
    const StatusCode code =
        format::has_magic(head) ? StatusCode::kTruncated : StatusCode::kNotATrace;
    return Status::make(code, "FileHeader");
  }
  const Result<format::FileHeader> header = format::decode_file_header(slot);
  if (header.ok()) {
    CONVTRACE_TRY(check_features(header.value().required_features));
    return FileIdentity{header.value(), header.value().file_tag};
  }
  if (header.status().code == StatusCode::kUnsupportedVersion) return header.status();
  const std::optional<uint32_t> tag = majority_file_tag(source);
  if (!tag) return header.status();
  return FileIdentity{std::nullopt, *tag};
}

std::optional<TraceIndex> load_index(const ByteSource& source, uint32_t file_tag,
                                     ProblemList& problems) {
  const auto footer = read_footer(source, file_tag);
  if (!footer) return std::nullopt;
  TraceIndex index;
  index.closed = true;
  const bool good =
      read_entries(source, *footer, index.entries) &&
      index.entries.size() == footer->record_count && !index.entries.empty() &&
      index.entries.back().offset + format::record_extent(index.entries.back().header) ==
          footer->data_end;
  if (!good) {
    problems.add(footer->index_offset, 0, "the index is damaged; searched for the records instead");
    return std::nullopt;
  }
  return index;
}

void TraceIndex::add(const RecordEntry& entry) {
  closed = entry.header.kind == RecordKind::kFooter;
  if (entry.header.kind != RecordKind::kIndex && !closed) entries.push_back(entry);
}

TraceIndex scan_index(const ByteSource& source, uint32_t file_tag, ProblemList& problems) {
  TraceIndex index;
  RecordScanner scanner(source, file_tag, problems);
  while (const auto entry = scanner.next()) index.add(*entry);
  scanner.finish();
  index.lost_records = scanner.lost_records();
  index.cut_bytes = scanner.cut_bytes();
  return index;
}

}  // namespace convtrace::reader

#include "format/file/record_writer.h"

#include <algorithm>

#include "format/base/checksum.h"
#include "format/file/record_codec.h"

namespace convtrace::format {

Status RecordWriter::append(Bytes a, Bytes b) {
  if (!status_.ok()) return status_;
  return status_ = sink_->append(a, b);
}

Status RecordWriter::write_file_header(const FileHeader& header) {
  file_tag_ = header.file_tag;
  const Slot slot = encode(header);
  return append(slot, {});
}

Status RecordWriter::pack(RecordHeader& header, Bytes raw) {
  CONVTRACE_TRY(compressor_.compress(raw, payload_));
  header.codec = Codec::kZstd;
  const bool worth_it = payload_.size() <= raw.size() - raw.size() / 20;
  if (!worth_it) {
    header.codec = Codec::kNone;
    payload_.assign(raw.begin(), raw.end());
  }
  header.raw_size = static_cast<uint32_t>(raw.size());
  header.stored_size = static_cast<uint32_t>(payload_.size());
  header.payload_checksum = checksum32(payload_);
  return kOkStatus;
}

Status RecordWriter::append_record(RecordHeader header) {
  header.file_tag = file_tag_;
  header.seq = next_seq_;
  payload_.resize(align_up(payload_.size(), kSlotBytes));
  index_.push_back({sink_->size(), header});
  const Slot slot = encode(header);
  CONVTRACE_TRY(append(slot, payload_));
  ++next_seq_;
  return kOkStatus;
}

Status RecordWriter::write(RecordHeader header, Bytes raw) {
  if (!status_.ok()) return status_;
  if (raw.size() > kMaxRecordBytes) {
    return fail(
        Status::make(StatusCode::kLimitExceeded, "record", static_cast<int64_t>(raw.size())));
  }
  if (const Status packed = pack(header, raw); !packed.ok()) return fail(packed);
  return append_record(header);
}

Status RecordWriter::write_stored(RecordHeader header, Bytes stored) {
  if (!status_.ok()) return status_;
  payload_.assign(stored.begin(), stored.end());
  return append_record(header);
}

Status RecordWriter::write_index_and_footer(uint64_t event_count) {
  if (!status_.ok()) return status_;
  Footer footer;
  footer.index_offset = footer.data_end = sink_->size();
  footer.event_count = event_count;
  footer.record_count = static_cast<uint32_t>(index_.size());
  footer.file_tag = file_tag_;

  const std::vector<RecordEntry> entries = std::move(index_);
  std::vector<std::byte> raw;
  for (size_t begin = 0; begin < entries.size(); begin += kMaxIndexEntries) {
    const size_t end = std::min(entries.size(), begin + kMaxIndexEntries);
    raw.resize((end - begin) * kIndexEntryBytes);
    std::byte* to = raw.data();
    for (size_t i = begin; i < end; ++i, to += kIndexEntryBytes) {
      const Slot copy = encode(entries[i].header);
      store_le(to, entries[i].offset);
      std::memcpy(to + sizeof(uint64_t), copy.data(), copy.size());
    }
    RecordHeader header{.kind = RecordKind::kIndex};
    header.item_count = static_cast<uint32_t>(end - begin);
    CONVTRACE_TRY(write(header, raw));
  }
  footer.seq = next_seq_;
  const Slot slot = encode(footer);
  return append(slot, {});
}

}  // namespace convtrace::format

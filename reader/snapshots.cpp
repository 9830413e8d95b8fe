#include "reader/snapshots.h"

#include <array>
#include <utility>

namespace convtrace::reader {
namespace {

using format::BlobHeader;
using format::ContentId;
using format::RecordEntry;

constexpr Status kMissing = Status::make(StatusCode::kNotFound, "snapshot");
constexpr Status kDamaged = Status::make(StatusCode::kCorrupt, "snapshot");

}  // namespace

Snapshots::Snapshots(const ByteSource& source, std::span<const RecordEntry> records)
    : source_(source), records_(records), payloads_(source) {
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].header.kind == format::RecordKind::kBlob) list(i);
  }
}

void Snapshots::list(size_t record) {
  const RecordEntry& entry = records_[record];
  std::array<std::byte, format::kBlobHeaderBytes> bytes;
  if (entry.header.codec != format::Codec::kNone || entry.header.stored_size < bytes.size()) return;
  if (!source_.read(entry.offset + format::kSlotBytes, bytes).ok()) return;
  const auto header = format::decode_blob_header(bytes);  // decode() verifies its checksum
  if (!header) return;
  const Part part{record, header->part_bytes, header->depth};
  const auto [at, added] =
      parts_.try_emplace({header->content.hash, header->content.bytes, header->offset}, part);
  // A value may be stored several times. The copy with the shortest chain is used as a base.
  if (!added && part.depth < at->second.depth) at->second = part;
}

bool Snapshots::has(const ContentId& content) const {
  uint64_t offset = 0;
  for (auto at = parts_.find({content.hash, content.bytes, 0}); offset < content.bytes; ++at) {
    const bool next = at != parts_.end() && at->first.hash == content.hash &&
                      at->first.bytes == content.bytes && at->first.offset == offset;
    if (!next) return false;
    offset += at->second.part_bytes;
  }
  return true;
}

Status Snapshots::decode(const Key& key, const Part& part) {
  struct Link {
    const Part* part;
    BlobHeader header;
  };
  std::vector<Link> chain;
  for (const Part* at = &part; at != nullptr;) {
    const Result<Bytes> payload = payloads_.read(records_[at->record]);
    if (!payload.ok()) return payload.status();
    const auto header = format::decode_blob_header(payload.value());
    const bool as_listed = header && header->depth == at->depth && header->offset == key.offset &&
                           header->part_bytes == part.part_bytes;
    if (!as_listed) return kDamaged;
    chain.push_back({at, *header});
    if (header->depth == 0) break;
    const auto base = parts_.find({header->base_hash, key.bytes, key.offset});
    if (base == parts_.end()) return kMissing;
    if (base->second.depth >= at->depth) return kDamaged;  // so that the chain must end
    at = &base->second;
  }
  Bytes base;
  for (size_t i = chain.size(); i-- > 0;) {
    const Result<Bytes> payload = payloads_.read(records_[chain[i].part->record]);
    if (!payload.ok()) return payload.status();
    buffers_[1].resize(chain[i].header.part_bytes);
    CONVTRACE_TRY(decoder_.decode(chain[i].header, payload.value(), base, buffers_[1]));
    std::swap(buffers_[0], buffers_[1]);
    base = buffers_[0];
  }
  return kOkStatus;
}

Status Snapshots::read(const ContentId& content, const std::function<bool(Bytes)>& take) {
  if (!has(content)) return kMissing;
  uint64_t offset = 0;
  for (auto at = parts_.find({content.hash, content.bytes, 0}); offset < content.bytes; ++at) {
    CONVTRACE_TRY(decode(at->first, at->second));
    if (!take(buffers_[0])) return kOkStatus;
    offset += at->second.part_bytes;
  }
  return kOkStatus;
}

uint64_t Snapshots::raw_bytes() const {
  uint64_t sum = 0;
  for (const auto& [key, part] : parts_) sum += part.part_bytes;
  return sum;
}

void Snapshots::check_all(const std::function<void(size_t record, const Status&)>& use) {
  for (const auto& [key, part] : parts_) use(part.record, decode(key, part));
}

}  // namespace convtrace::reader

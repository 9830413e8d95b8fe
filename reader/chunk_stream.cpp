#include "reader/chunk_stream.h"

#include <new>

#include "reader/read_ahead.h"

namespace convtrace::reader {
namespace {

void load(Chunk& chunk, const format::RecordEntry& entry, KindSet wanted) {
  chunk.decoder.clear();
  chunk.payload_status = chunk.decoder_status = kOkStatus;
  if (wanted == kNoKinds) {
    chunk.payload_status = chunk.payload.read_stored(entry).status();
    return;
  }
  const Result<Bytes> raw = chunk.payload.read(entry);
  chunk.payload_status = raw.status();
  if (!raw.ok()) return;
  chunk.decoder_status = chunk.decoder.load(raw.value(), entry.header.item_count, wanted);
}

/// Runs on any thread, where an exception would end the process.
void load_or_fail(Chunk& chunk, const format::RecordEntry& entry, KindSet wanted) {
  try {
    load(chunk, entry, wanted);
  } catch (const std::bad_alloc&) {
    chunk.payload_status = Status::make(StatusCode::kOutOfMemory, "chunk");
  }
}

ReadAhead<Chunk>::Slots make_slots(const ByteSource& source, unsigned threads) {
  ReadAhead<Chunk>::Slots slots;
  const size_t count = threads > 1 ? 2 * size_t{threads} : 1;
  while (slots.size() < count) slots.push_back(std::make_unique<Chunk>(source));
  return slots;
}

}  // namespace

struct ChunkStream::Impl {
  ReadAhead<Chunk> ahead;

  Impl(const ChunkStream& stream)
      : ahead(make_slots(stream.container_.source(), stream.threads_), stream.threads_,
              [&stream](size_t record, Chunk& chunk) {
                const format::RecordEntry& entry = stream.container_.records()[record];
                chunk.record = record;
                if (stream.is_read(entry.header))
                  load_or_fail(chunk, entry, stream.wanted(entry.header));
              }) {}
};

ChunkStream::ChunkStream(TraceContainer& container, unsigned threads)
    : container_(container), threads_(threads) {
  rewind();
}

ChunkStream::~ChunkStream() = default;

void ChunkStream::rewind() { impl_ = std::make_unique<Impl>(*this); }

void ChunkStream::select(std::function<KindSet(const format::RecordHeader&)> wanted,
                         Unwanted unwanted) {
  impl_.reset();  // its threads call the former one
  wanted_ = std::move(wanted);
  unwanted_ = unwanted;
  rewind();
}

KindSet ChunkStream::wanted(const format::RecordHeader& header) const {
  if (header.kind != format::RecordKind::kEvents) return kNoKinds;
  return wanted_ ? wanted_(header) : kAllKinds;
}

bool ChunkStream::is_read(const format::RecordHeader& header) const {
  if (header.kind != format::RecordKind::kEvents) return false;
  return unwanted_ == Unwanted::kCheck || wanted(header) != kNoKinds;
}

Chunk* ChunkStream::next() {
  impl_->ahead.set_count(container_.records().size());
  while (Chunk* chunk = impl_->ahead.next()) {
    const size_t record = chunk->record;
    const format::RecordHeader& header = container_.records()[record].header;
    if (!is_read(header)) continue;
    if (!chunk->payload_status.ok()) {
      container_.report_lost(record, chunk->payload_status);
      continue;
    }
    if (!chunk->payload.header_intact()) container_.report(record, kHeaderDamaged);
    if (wanted(header) == kNoKinds) continue;
    if (chunk->decoder_status.ok()) return chunk;
    container_.report_lost(record, "events damaged");
  }
  return nullptr;
}

}  // namespace convtrace::reader

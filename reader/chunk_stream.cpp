#include "reader/chunk_stream.h"

#include <new>

#include "reader/read_ahead.h"

namespace convtrace::reader {
namespace {

void load(Chunk& chunk, size_t record, const format::RecordEntry& entry) {
  chunk.record = record;
  chunk.decoder.clear();
  chunk.payload_status = chunk.decoder_status = kOkStatus;
  if (entry.header.kind != format::RecordKind::kEvents) return;
  const Result<Bytes> raw = chunk.payload.read(entry);
  chunk.payload_status = raw.status();
  if (raw.ok()) chunk.decoder_status = chunk.decoder.load(raw.value(), entry.header.item_count);
}

/// In whichever thread: an exception would leave it and end the process.
void load_or_fail(Chunk& chunk, size_t record, const format::RecordEntry& entry) {
  try {
    load(chunk, record, entry);
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

  Impl(const TraceContainer& container, unsigned threads)
      : ahead(make_slots(container.source(), threads), threads,
              [&container](size_t record, Chunk& chunk) {
                load_or_fail(chunk, record, container.records()[record]);
              }) {}
};

ChunkStream::ChunkStream(TraceContainer& container, unsigned threads)
    : container_(container), threads_(threads) {
  rewind();
}

ChunkStream::~ChunkStream() = default;

void ChunkStream::rewind() { impl_ = std::make_unique<Impl>(container_, threads_); }

Chunk* ChunkStream::next() {
  impl_->ahead.set_count(container_.records().size());
  while (Chunk* chunk = impl_->ahead.next()) {
    const size_t record = chunk->record;
    if (container_.records()[record].header.kind != format::RecordKind::kEvents) continue;
    if (!chunk->payload_status.ok()) {
      container_.report_lost(record, chunk->payload_status);
      continue;
    }
    if (!chunk->payload.header_intact()) container_.report(record, kHeaderDamaged);
    if (chunk->decoder_status.ok()) return chunk;
    container_.report_lost(record, "events damaged");
  }
  return nullptr;
}

}  // namespace convtrace::reader

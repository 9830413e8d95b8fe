#include "reader/chunk_stream.h"

#include <new>

#include "reader/read_ahead.h"

namespace convtrace::reader {
namespace {

void load(Chunk& chunk, const format::RecordEntry& entry) {
  chunk.decoder.clear();
  chunk.payload_status = chunk.decoder_status = kOkStatus;
  const Result<Bytes> raw = chunk.payload.read(entry);
  chunk.payload_status = raw.status();
  if (raw.ok()) chunk.decoder_status = chunk.decoder.load(raw.value(), entry.header.item_count);
}

/// In whichever thread: an exception would leave it and end the process.
void load_or_fail(Chunk& chunk, const format::RecordEntry& entry) {
  try {
    load(chunk, entry);
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
                if (stream.is_wanted(entry.header)) load_or_fail(chunk, entry);
              }) {}
};

ChunkStream::ChunkStream(TraceContainer& container, unsigned threads)
    : container_(container), threads_(threads) {
  rewind();
}

ChunkStream::~ChunkStream() = default;

void ChunkStream::rewind() { impl_ = std::make_unique<Impl>(*this); }

void ChunkStream::skip(std::function<bool(const format::RecordHeader&)> unwanted) {
  impl_.reset();  // its threads ask the one before
  unwanted_ = std::move(unwanted);
  rewind();
}

bool ChunkStream::is_wanted(const format::RecordHeader& header) const {
  return header.kind == format::RecordKind::kEvents && !(unwanted_ && unwanted_(header));
}

Chunk* ChunkStream::next() {
  impl_->ahead.set_count(container_.records().size());
  while (Chunk* chunk = impl_->ahead.next()) {
    const size_t record = chunk->record;
    if (!is_wanted(container_.records()[record].header)) continue;
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

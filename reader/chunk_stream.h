#pragma once
/// @file chunk_stream.h
/// The EVENTS records of a trace in file order; read, checked and decoded ahead of the consumer.
///
/// Place:    trace_reader.cpp, and `convtrace recover`, which also needs the stored bytes.
/// Threads:  one owner thread; others work ahead internally. A live file is read by one thread
///           only.
/// Memory:   twice as many chunks as threads, each with a stored and a raw payload (at most 64
///           MiB).
/// Errors:   bad chunks are reported to the container and skipped.

#include <functional>
#include <memory>

#include "reader/event_decoder.h"
#include "reader/payload_reader.h"
#include "reader/trace_container.h"

namespace convtrace::reader {

/// One EVENTS record. Its decoder borrows from its payload.
struct Chunk {
  explicit Chunk(const ByteSource& source) : payload(source) {}

  size_t record = 0;  ///< index in TraceContainer::records()
  PayloadReader payload;
  EventDecoder decoder;
  Status payload_status, decoder_status;
};

class ChunkStream {
 public:
  /// @param container  borrowed.
  ChunkStream(TraceContainer& container, unsigned threads);
  ~ChunkStream();

  /// @return the next good chunk, valid until the next call; null at the end. In a live file there
  /// may be more after TraceContainer::refresh.
  Chunk* next();

  /// Restarts at the first chunk.
  void rewind();

  /// Restarts, and decodes only some of the events.
  /// @param wanted  kinds to decode of an EVENTS record; called from any thread.
  void select(std::function<KindSet(const format::RecordHeader&)> wanted, Unwanted unwanted);

 private:
  struct Impl;

  [[nodiscard]] KindSet wanted(const format::RecordHeader& header) const;
  [[nodiscard]] bool is_read(const format::RecordHeader& header) const;

  TraceContainer& container_;
  const unsigned threads_;
  std::function<KindSet(const format::RecordHeader&)> wanted_;
  Unwanted unwanted_ = Unwanted::kSkip;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convtrace::reader

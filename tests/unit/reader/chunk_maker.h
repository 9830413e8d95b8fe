#pragma once
/// @file chunk_maker.h
/// Payloads of EVENTS records that no writer of ours would make.

#include <functional>

#include "format/base/bytes.h"
#include "format/file/columns/packed_column.h"
#include "format/schema/chunk_generated.h"
#include "format/schema/conventions.h"
#include "reader/event_decoder.h"

namespace convtrace::test {

namespace wire = format::wire;

/// @return a column of these values as it is stored.
inline std::vector<uint8_t> packed(const std::vector<uint64_t>& values) {
  format::PackedColumn column;
  for (size_t row = 0; row < values.size(); ++row) column.put(row, values[row]);
  return column.pack(values.size());
}

inline constexpr StatusCode kOk = StatusCode::kOk, kCorrupt = StatusCode::kCorrupt;

class ChunkMaker {
 public:
  explicit ChunkMaker(const std::function<void(wire::ChunkT&)>& change) {
    wire::ChunkT chunk;
    change(chunk);
    count_ = static_cast<uint32_t>(chunk.kind.size());
    wire::FinishChunkBuffer(builder_, wire::Chunk::Pack(builder_, &chunk));
  }
  [[nodiscard]] Bytes bytes() const {
    return std::as_bytes(std::span(builder_.GetBufferPointer(), builder_.GetSize()));
  }
  [[nodiscard]] Status load(reader::EventDecoder& decoder) const {
    return decoder.load(bytes(), count_);
  }
  [[nodiscard]] StatusCode code() const {
    reader::EventDecoder decoder;
    return load(decoder).code;
  }

 private:
  flatbuffers::FlatBufferBuilder builder_;
  uint32_t count_ = 0;
};

/// Makes `rows` launches of one signature.
inline wire::LaunchColumnsT& with_launches(wire::ChunkT& chunk, size_t rows) {
  chunk.kind.assign(rows, 0);
  chunk.launch = std::make_unique<wire::LaunchColumnsT>();
  std::vector<uint64_t> back(rows);
  if (rows > 1) back[1] = format::wire::zigzag(1);  // and so on: the column holds differences
  chunk.launch->back = packed(back);
  return *chunk.launch;
}

/// Makes `rows` statistics, each with a signature of its own.
inline wire::StatsColumnsT& with_stats(wire::ChunkT& chunk, size_t rows) {
  chunk.kind.assign(rows, 1);
  chunk.stats = std::make_unique<wire::StatsColumnsT>();
  chunk.stats->hash.resize(rows);
  return *chunk.stats;
}

}  // namespace convtrace::test

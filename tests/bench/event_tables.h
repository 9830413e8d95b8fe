#pragma once
/// @file event_tables.h
/// The obvious way to store events, to compare the format with: one FlatBuffers table for each
/// event, chunks of the same size, zstd level 1 and the same checksum.
///
/// Fair:     names are ids as in the format, builder and compressor are reused, and fields with
///           their default value are left out, as FlatBuffers does.

#include <vector>

#include "flatbuffers/flatbuffers.h"
#include "format/base/compressor.h"
#include "format/model/events.h"
#include "tests/bench/generated/event_tables_generated.h"

namespace convtrace::bench {

class EventTables {
 public:
  void append(const format::Event& event);
  /// Ends the open chunk.
  void flush();

  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] uint32_t checksums() const { return checksums_; }

 private:
  flatbuffers::Offset<wire::Launch> launch(const format::Launch& event);

  flatbuffers::FlatBufferBuilder builder_{1u << 20};
  std::vector<flatbuffers::Offset<wire::Event>> events_;
  std::vector<flatbuffers::Offset<wire::Operand>> operands_;
  format::Compressor compressor_;
  std::vector<std::byte> compressed_;
  uint64_t seq_ = 0;
  uint64_t bytes_ = 0;
  uint32_t checksums_ = 0;
};

}  // namespace convtrace::bench

#pragma once
/// @file verified_chunk.h
/// An EVENTS payload as a table whose offsets can be followed.
///
/// Source:   format/FORMAT.md section 9.

#include "format/base/bytes.h"
#include "format/file/layout.h"
#include "format/schema/chunk_generated.h"

namespace convtrace::reader {

/// Of every FlatBuffer.
inline constexpr flatbuffers::uoffset_t kMaxDepth = 16;

/// @param raw  aligned to 8 bytes; borrowed.
/// @return nothing when it is damaged; else a table whose columns are still to be checked.
[[nodiscard]] inline const format::wire::Chunk* verified_chunk(Bytes raw) {
  constexpr flatbuffers::uoffset_t kMaxTables = format::kMaxChunkEvents + 64;  // the rare events
  const auto* data = reinterpret_cast<const uint8_t*>(raw.data());
  flatbuffers::Verifier verifier(data, raw.size(), kMaxDepth, kMaxTables);
  return format::wire::VerifyChunkBuffer(verifier) ? format::wire::GetChunk(data) : nullptr;
}

}  // namespace convtrace::reader

#pragma once
/// @file verified_chunk.h
/// Verifies an EVENTS payload, so that its offsets can be followed.
///
/// Source:   format/FORMAT.md section 9.

#include "format/base/bytes.h"
#include "format/file/layout.h"
#include "format/schema/chunk_generated.h"

namespace convtrace::reader {

/// Deepest nesting of tables in any FlatBuffer of a trace.
inline constexpr flatbuffers::uoffset_t kMaxDepth = 16;

/// @param raw  aligned to 8 bytes; borrowed.
/// @return null if it is damaged; else a table whose columns are not checked yet.
[[nodiscard]] inline const format::wire::Chunk* verified_chunk(Bytes raw) {
  constexpr flatbuffers::uoffset_t kMaxTables = format::kMaxChunkEvents + 64;  // rare kinds
  const auto* data = reinterpret_cast<const uint8_t*>(raw.data());
  flatbuffers::Verifier verifier(data, raw.size(), kMaxDepth, kMaxTables);
  return format::wire::VerifyChunkBuffer(verifier) ? format::wire::GetChunk(data) : nullptr;
}

}  // namespace convtrace::reader

#pragma once
/// @file verified_payload.h
/// Verifies an EVENTS payload, so that its offsets can be followed, and decodes the step sums of EVENTS
/// and SUMS payloads.
///
/// Place:    event_decoder.cpp, metadata_decoder.cpp; format/file/columns/step_sums.h is its
///           mirror.
/// Source:   format/FORMAT.md sections 6.7 and 9.

#include <vector>

#include "format/base/bytes.h"
#include "format/file/columns/step_sums.h"
#include "format/file/layout.h"
#include "format/schema/chunk_generated.h"
#include "format/schema/sums_generated.h"

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

template <typename T>
[[nodiscard]] bool holds_rows(const flatbuffers::Vector<T>* column, size_t rows) {
  return column != nullptr && column->size() == rows &&
         reinterpret_cast<uintptr_t>(column->Data()) % alignof(T) == 0;
}

/// Appends the sums of `from`, which is verified.
/// @return whether they are consistent; if not, nothing is appended.
[[nodiscard]] inline bool append_sums(const format::wire::StepSums& from,
                                      std::vector<format::StepSums>& to) {
  const size_t rows = from.step() != nullptr ? from.step()->size() : 0;
  if (rows == 0) return true;
  const bool fits = rows <= format::kMaxSums && holds_rows(from.step(), rows) &&
                    holds_rows(from.launches(), rows) && holds_rows(from.values(), rows) &&
                    holds_rows(from.key_sum(), rows) && holds_rows(from.value_sum(), rows);
  for (uint32_t i = 0; fits && i < rows; ++i) {
    to.push_back({.step = from.step()->Get(i),
                  .launches = from.launches()->Get(i),
                  .values = from.values()->Get(i),
                  .key_sum = from.key_sum()->Get(i),
                  .value_sum = from.value_sum()->Get(i)});
  }
  return fits;
}

}  // namespace convtrace::reader

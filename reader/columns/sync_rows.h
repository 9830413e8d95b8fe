#pragma once
/// @file sync_rows.h
/// What orders streams in a chunk, one event after another.
///
/// Place:    event_decoder.cpp; format/file/columns/sync_columns.h is its mirror.
/// Errors:   bind() finds everything that can be wrong with a hostile chunk.
/// Source:   format/FORMAT.md section 6.5.

#include "reader/columns/signature_rows.h"

namespace convtrace::reader {

class SyncRows : public SignatureRows<format::Sync> {
 public:
  /// @return whether `table` holds exactly `row_count` events.
  [[nodiscard]] bool bind(const wire::SyncColumns* table, size_t row_count);
};

}  // namespace convtrace::reader

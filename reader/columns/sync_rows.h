#pragma once
/// @file sync_rows.h
/// What orders streams in a chunk, one event after another.
///
/// Place:    event_decoder.cpp; format/columns/sync_columns.h is its mirror.
/// Errors:   bind() finds everything that can be wrong with a hostile chunk.
/// Source:   format/FORMAT.md section 6.5.

#include <vector>

#include "format/events.h"
#include "reader/columns/row_table.h"

namespace convtrace::reader {

class SyncRows {
 public:
  /// @return whether `table` holds exactly `row_count` events.
  [[nodiscard]] bool bind(const wire::SyncColumns* table, size_t row_count);
  /// Makes `event` the next one.
  /// @return whether all its enumerators are known. @pre there is one
  bool next(format::EventHeader header, format::Event& event);

 private:
  struct Signature {
    format::Sync event;
    bool known = true;
  };
  LikeTable rows_;
  size_t row_ = 0;
  std::vector<Signature> signatures_;
};

}  // namespace convtrace::reader

#pragma once
/// @file sync_columns.h
/// What orders streams in a chunk. A program repeats handles too: they are part of what a row is
/// known by, so that a step like the one before costs its events' headers alone.
///
/// Place:    event_encoder.cpp; reader/columns/sync_rows.h is its mirror.
/// Source:   format/FORMAT.md section 6.5.

#include <memory>

#include "format/file/columns/row_columns.h"
#include "format/model/events.h"

namespace convtrace::format {

namespace wire {
struct SyncColumnsT;
}

class SyncColumns {
 public:
  void put(const Sync& event);
  [[nodiscard]] size_t packed_bytes() const { return rows_.packed_bytes(); }
  [[nodiscard]] std::unique_ptr<wire::SyncColumnsT> pack() const;
  void clear() { rows_.clear(); }

 private:
  RowColumns<5, 0> rows_;
};

}  // namespace convtrace::format

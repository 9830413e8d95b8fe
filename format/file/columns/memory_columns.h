#pragma once
/// @file memory_columns.h
/// Allocations, or frees, or other writes to memory, of a chunk.
///
/// Place:    event_encoder.cpp; reader/columns/memory_rows.h is its mirror.
/// Threads:  one owner thread.
/// Source:   format/FORMAT.md section 6.5.

#include <memory>

#include "format/file/columns/row_columns.h"
#include "format/model/events.h"

namespace convtrace::format {

namespace wire {
struct CopyColumnsT;
struct MemoryColumnsT;
}  // namespace wire

class MemoryColumns {
 public:
  /// @param event  Alloc or Free.
  void put(const auto& event) {
    rows_.put(
        {event.bytes, static_cast<uint64_t>(event.source), static_cast<uint64_t>(event.device.type),
         event.device.index, event.stream, event.stack.value},
        {event.address, event.generation - last_generation_});
    last_generation_ = event.generation;
  }
  [[nodiscard]] size_t packed_bytes() const { return rows_.packed_bytes(); }
  /// @return nothing when there are no rows.
  [[nodiscard]] std::unique_ptr<wire::MemoryColumnsT> pack() const;
  void clear();

 private:
  RowColumns<6, 2> rows_;
  /// Generations count up from allocation to allocation, whatever the program does.
  uint64_t last_generation_ = 0;
};

class CopyColumns {
 public:
  void put(const Copy& event);
  [[nodiscard]] size_t packed_bytes() const { return rows_.packed_bytes(); }
  [[nodiscard]] std::unique_ptr<wire::CopyColumnsT> pack() const;
  void clear() { rows_.clear(); }

 private:
  RowColumns<3, 2> rows_;
};

}  // namespace convtrace::format

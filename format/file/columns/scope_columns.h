#pragma once
/// @file scope_columns.h
/// Modules entered and left in a chunk.
///
/// Place:    event_encoder.cpp; reader/columns/scope_rows.h is its mirror.
/// Source:   format/FORMAT.md section 6.5.

#include <memory>

#include "format/file/columns/row_columns.h"
#include "format/model/events.h"

namespace convtrace::format {

namespace wire {
struct ScopeColumnsT;
}

class ScopeColumns {
 public:
  void put(const Scope& event);
  [[nodiscard]] size_t packed_bytes() const { return rows_.packed_bytes(); }
  [[nodiscard]] std::unique_ptr<wire::ScopeColumnsT> pack() const;
  void clear() { rows_.clear(); }

 private:
  RowColumns<4, 0> rows_;
};

}  // namespace convtrace::format

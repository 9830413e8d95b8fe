#pragma once
/// @file op_columns.h
/// Tagged ops of a chunk. A program calls its ops with tensors of the same slots and sizes step by
/// step: what differs is where they lie.
///
/// Place:    event_encoder.cpp; reader/columns/op_rows.h is its mirror.
/// Source:   format/FORMAT.md section 6.5.

#include <memory>

#include "format/file/columns/row_columns.h"
#include "format/model/events.h"

namespace convtrace::format {

namespace wire {
struct OpColumnsT;
}

class OpColumns {
 public:
  void put(const Op& event);
  [[nodiscard]] size_t packed_bytes() const { return rows_.packed_bytes(); }
  /// @return nothing when there are no rows.
  [[nodiscard]] std::unique_ptr<wire::OpColumnsT> pack() const;
  void clear() { rows_.clear(); }

 private:
  RowColumns<12, 5> rows_;
};

}  // namespace convtrace::format

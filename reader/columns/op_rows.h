#pragma once
/// @file op_rows.h
/// The tagged ops of a chunk, one event after another.
///
/// Place:    event_decoder.cpp; format/file/columns/op_columns.h is its mirror.
/// Errors:   bind() finds everything that can be wrong with a hostile chunk.
/// Source:   format/FORMAT.md section 6.5.

#include "reader/columns/signature_rows.h"

namespace convtrace::reader {

class OpRows : private SignatureRows<format::Op> {
 public:
  /// @return whether `table` holds exactly `row_count` events.
  [[nodiscard]] bool bind(const wire::OpColumns* table, size_t row_count);

  using SignatureRows::resolved_by;

  /// Makes `event` the next one.
  /// @return whether all its enumerators are known. @pre there is one
  bool next(format::EventHeader header, format::Event& event);

 private:
  VaryingTable<5> varying_;
};

}  // namespace convtrace::reader

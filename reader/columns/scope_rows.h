#pragma once
/// @file scope_rows.h
/// The scope events of a chunk, one after another.
///
/// Place:    event_decoder.cpp; format/file/columns/scope_columns.h is its mirror.
/// Source:   format/FORMAT.md section 6.5.

#include "reader/columns/signature_rows.h"

namespace convtrace::reader {

class ScopeRows : public SignatureRows<format::Scope> {
 public:
  /// @return whether `table` holds exactly `row_count` events.
  [[nodiscard]] bool bind(const wire::ScopeColumns* table, size_t row_count);
};

}  // namespace convtrace::reader

#pragma once
/// @file scope_rows.h
/// The scope events of a chunk, one after another.
///
/// Place:    event_decoder.cpp; format/columns/scope_columns.h is its mirror.
/// Source:   format/FORMAT.md section 6.5.

#include <algorithm>
#include <vector>

#include "format/events.h"
#include "reader/columns/row_table.h"
#include "reader/definition_check.h"

namespace convtrace::reader {

class ScopeRows {
 public:
  /// @return whether `table` holds exactly `row_count` events.
  [[nodiscard]] bool bind(const wire::ScopeColumns* table, size_t row_count);
  /// Makes `event` the next one.
  /// @return whether all its enumerators are known. @pre there is one
  bool next(format::EventHeader header, format::Event& event);

  /// @return whether all that the events name is defined, of those whose enumerators are known.
  [[nodiscard]] bool resolved_by(const DefinitionCheck& check) const {
    return std::ranges::all_of(signatures_, [&check](const Signature& made) {
      return !made.known || check.resolves(made.event);
    });
  }

 private:
  struct Signature {
    format::Scope event;
    bool known = true;
  };
  LikeTable rows_;
  size_t row_ = 0;
  std::vector<Signature> signatures_;
};

}  // namespace convtrace::reader

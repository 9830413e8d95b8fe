#pragma once
/// @file signature_rows.h
/// The events of a kind whose columns are fixed parts: each is its signature, and a header.
///
/// Place:    scope_rows.h, sync_rows.h; op_rows.h adds what varies.
/// Source:   format/FORMAT.md section 6.2.

#include <algorithm>
#include <vector>

#include "format/model/events.h"
#include "reader/columns/definition_check.h"
#include "reader/columns/enums.h"
#include "reader/columns/row_table.h"

namespace convtrace::reader {

template <typename Kind>
class SignatureRows {
 public:
  /// Makes `event` the next one.
  /// @return whether all its enumerators are known. @pre there is one
  bool next(format::EventHeader header, format::Event& event) {
    const Signature& signature = signatures_[rows_.signature(row_++)];
    event.emplace<Kind>(signature.event).header = header;
    return signature.known;
  }

  /// @return whether all that the events name is defined, of those whose enumerators are known.
  [[nodiscard]] bool resolved_by(const DefinitionCheck& check) const {
    return std::ranges::all_of(signatures_, [&check](const Signature& made) {
      return !made.known || check.resolves(made.event);
    });
  }

 protected:
  /// @param columns  of signatures. @param fill  (row of `columns`, Kind&, Enums&).
  /// @return whether the table holds exactly `row_count` events. @pre clear()
  template <size_t N, typename Fill>
  [[nodiscard]] bool bind_rows(const PackedBytes* back, size_t row_count,
                               const StoredColumn (&columns)[N], const Fill& fill) {
    if (!rows_.bind(back, row_count)) return false;
    return each_row(columns, rows_.signature_count(), [&](const auto& v) {
      Signature& made = signatures_.emplace_back();
      Enums enums;
      fill(v, made.event, enums);
      made.known = enums.known;
    });
  }
  void clear() {
    row_ = 0;
    signatures_.clear();
  }
  [[nodiscard]] const LikeTable& rows() const { return rows_; }
  [[nodiscard]] size_t row() const { return row_; }  ///< the next one

 private:
  struct Signature {
    Kind event;
    bool known = true;
  };
  LikeTable rows_;
  size_t row_ = 0;
  std::vector<Signature> signatures_;
};

}  // namespace convtrace::reader

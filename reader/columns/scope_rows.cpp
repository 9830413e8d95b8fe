#include "reader/columns/scope_rows.h"

#include "reader/columns/enums.h"

namespace convtrace::reader {

bool ScopeRows::bind(const wire::ScopeColumns* table, size_t row_count) {
  row_ = 0;
  signatures_.clear();
  if (table == nullptr) return row_count == 0;
  const wire::ScopeColumns& t = *table;
  if (!rows_.bind(t.back(), row_count)) return false;
  const StoredColumn columns[] = {{t.scope(), 4}, {t.call(), 4}, {t.phase(), 1}, {t.enter(), 1}};
  return each_row(columns, rows_.signature_count(), [this](const auto& v) {
    Signature& made = signatures_.emplace_back();
    Enums enums;
    made.event.place.scope = {static_cast<uint32_t>(v[0])};
    made.event.place.call = static_cast<uint32_t>(v[1]);
    enums.set(made.event.place.phase, v[2]);
    made.event.enter = v[3] != 0;
    made.known = enums.known;
  });
}

bool ScopeRows::next(format::EventHeader header, format::Event& event) {
  const Signature& signature = signatures_[rows_.signature(row_++)];
  event.emplace<format::Scope>(signature.event).header = header;
  return signature.known;
}

}  // namespace convtrace::reader

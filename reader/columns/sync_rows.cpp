#include "reader/columns/sync_rows.h"

#include "reader/columns/enums.h"

namespace convtrace::reader {

bool SyncRows::bind(const wire::SyncColumns* table, size_t row_count) {
  row_ = 0;
  signatures_.clear();
  if (table == nullptr) return row_count == 0;
  const wire::SyncColumns& t = *table;
  if (!rows_.bind(t.back(), row_count)) return false;
  const StoredColumn columns[] = {
      {t.kind(), 1}, {t.device(), 1}, {t.stream(), 8}, {t.event(), 8}, {t.flags(), 4}};
  return each_row(columns, rows_.signature_count(), [this](const auto& v) {
    Signature& made = signatures_.emplace_back();
    Enums enums;
    enums.set(made.event.kind, v[0]);
    made.event.device = static_cast<uint8_t>(v[1]);
    made.event.stream = v[2];
    made.event.event = v[3];
    made.event.flags = static_cast<uint32_t>(v[4]);
    made.known = enums.known;
  });
}

bool SyncRows::next(format::EventHeader header, format::Event& event) {
  const Signature& signature = signatures_[rows_.signature(row_++)];
  event.emplace<format::Sync>(signature.event).header = header;
  return signature.known;
}

}  // namespace convtrace::reader

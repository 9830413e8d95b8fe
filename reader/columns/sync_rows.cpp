#include "reader/columns/sync_rows.h"

namespace convtrace::reader {

bool SyncRows::bind(const wire::SyncColumns* table, size_t row_count) {
  clear();
  if (table == nullptr) return row_count == 0;
  const wire::SyncColumns& t = *table;
  return bind_rows(
      t.back(), row_count,
      {{t.kind(), 1}, {t.device(), 1}, {t.stream(), 8}, {t.event(), 8}, {t.flags(), 4}},
      [](const auto& v, format::Sync& sync, Enums& enums) {
        enums.set(sync.kind, v[0]);
        sync.device = static_cast<uint8_t>(v[1]);
        sync.stream = v[2];
        sync.event = v[3];
        sync.flags = static_cast<uint32_t>(v[4]);
      });
}

}  // namespace convtrace::reader

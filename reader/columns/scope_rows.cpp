#include "reader/columns/scope_rows.h"

namespace convtrace::reader {

bool ScopeRows::bind(const wire::ScopeColumns* table, size_t row_count) {
  clear();
  if (table == nullptr) return row_count == 0;
  const wire::ScopeColumns& t = *table;
  return bind_rows(t.back(), row_count,
                   {{t.scope(), 4}, {t.call(), 4}, {t.phase(), 1}, {t.enter(), 1}},
                   [](const auto& v, format::Scope& scope, Enums& enums) {
                     scope.place.scope = {static_cast<uint32_t>(v[0])};
                     scope.place.call = static_cast<uint32_t>(v[1]);
                     enums.set(scope.place.phase, v[2]);
                     scope.enter = v[3] != 0;
                   });
}

}  // namespace convtrace::reader

#include "format/file/columns/scope_columns.h"

#include "format/schema/chunk_generated.h"

namespace convtrace::format {

void ScopeColumns::put(const Scope& e) {
  rows_.put({e.place.scope.value, e.place.call, static_cast<uint64_t>(e.place.phase),
             static_cast<uint64_t>(e.enter)},
            {});
}

std::unique_ptr<wire::ScopeColumnsT> ScopeColumns::pack() const {
  using To = wire::ScopeColumnsT;
  if (rows_.row_count() == 0) return nullptr;
  auto to = std::make_unique<To>();
  rows_.pack(*to, {&To::scope, &To::call, &To::phase, &To::enter}, {});
  return to;
}

}  // namespace convtrace::format

#include "format/file/columns/sync_columns.h"

#include "format/schema/chunk_generated.h"

namespace convtrace::format {

void SyncColumns::put(const Sync& e) {
  rows_.put({static_cast<uint64_t>(e.kind), e.device, e.stream, e.event, e.flags}, {});
}

std::unique_ptr<wire::SyncColumnsT> SyncColumns::pack() const {
  using To = wire::SyncColumnsT;
  if (rows_.row_count() == 0) return nullptr;
  auto to = std::make_unique<To>();
  rows_.pack(*to, {&To::kind, &To::device, &To::stream, &To::event, &To::flags}, {});
  return to;
}

}  // namespace convtrace::format

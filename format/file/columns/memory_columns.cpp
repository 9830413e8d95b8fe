#include "format/file/columns/memory_columns.h"

#include "format/schema/chunk_generated.h"

namespace convtrace::format {

std::unique_ptr<wire::MemoryColumnsT> MemoryColumns::pack() const {
  using To = wire::MemoryColumnsT;
  if (rows_.row_count() == 0) return nullptr;
  auto to = std::make_unique<To>();
  rows_.pack(
      *to, {&To::bytes, &To::source, &To::device_type, &To::device_index, &To::stream, &To::stack},
      {&To::address, &To::generation});
  return to;
}

void MemoryColumns::clear() {
  rows_.clear();
  last_generation_ = 0;
}

void CopyColumns::put(const Copy& e) {
  rows_.put({static_cast<uint64_t>(e.kind), e.bytes, e.stream}, {e.destination, e.source});
}

std::unique_ptr<wire::CopyColumnsT> CopyColumns::pack() const {
  using To = wire::CopyColumnsT;
  if (rows_.row_count() == 0) return nullptr;
  auto to = std::make_unique<To>();
  rows_.pack(*to, {&To::kind, &To::bytes, &To::stream}, {&To::destination, &To::source});
  return to;
}

}  // namespace convtrace::format

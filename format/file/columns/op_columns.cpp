#include "format/file/columns/op_columns.h"

#include "format/schema/chunk_generated.h"

namespace convtrace::format {

void OpColumns::put(const Op& e) {
  const uint64_t flags = uint64_t{e.declares_alias} | uint64_t{e.has_schema} << 1 |
                         uint64_t{e.written} << 2 | uint64_t{e.frees_reported} << 3 |
                         uint64_t{e.borrows} << 4;
  rows_.put({e.place.scope.value, e.place.call, static_cast<uint64_t>(e.place.phase),
             static_cast<uint64_t>(e.moment), flags, e.op.value, e.slot.value,
             static_cast<uint64_t>(e.device.type), e.device.index, e.bytes, e.storage_bytes,
             e.stack.value},
            {e.address, e.value.storage, e.value.offset, e.value.generation, e.value.version});
}

std::unique_ptr<wire::OpColumnsT> OpColumns::pack() const {
  using To = wire::OpColumnsT;
  if (rows_.row_count() == 0) return nullptr;
  auto to = std::make_unique<To>();
  rows_.pack(*to,
             {&To::scope, &To::call, &To::phase, &To::moment, &To::flags, &To::op, &To::slot,
              &To::device_type, &To::device_index, &To::bytes, &To::storage_bytes, &To::stack},
             {&To::address, &To::storage, &To::storage_offset, &To::generation, &To::version});
  return to;
}

}  // namespace convtrace::format

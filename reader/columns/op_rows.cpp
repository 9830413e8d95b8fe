#include "reader/columns/op_rows.h"

namespace convtrace::reader {

using namespace format;

bool OpRows::bind(const wire::OpColumns* table, size_t row_count) {
  clear();
  if (table == nullptr) return row_count == 0;
  const wire::OpColumns& t = *table;
  return bind_rows(t.back(), row_count,
                   {{t.scope(), 4},
                    {t.call(), 4},
                    {t.phase(), 1},
                    {t.moment(), 1},
                    {t.flags(), 1},
                    {t.op(), 4},
                    {t.slot(), 4},
                    {t.device_type(), 1},
                    {t.device_index(), 1},
                    {t.bytes(), 8},
                    {t.storage_bytes(), 8},
                    {t.stack(), 4}},
                   [](const auto& v, Op& op, Enums& enums) {
                     const auto u32 = [&v](size_t i) { return static_cast<uint32_t>(v[i]); };
                     op.place.scope = {u32(0)};
                     op.place.call = u32(1);
                     enums.set(op.place.phase, v[2]);
                     enums.set(op.moment, v[3]);
                     op.declares_alias = (v[4] & 1) != 0;
                     op.has_schema = (v[4] & 2) != 0;
                     op.written = (v[4] & 4) != 0;
                     op.frees_reported = (v[4] & 8) != 0;
                     op.borrows = (v[4] & 16) != 0;
                     op.op = {u32(5)};
                     op.slot = {u32(6)};
                     enums.set(op.device.type, v[7]);
                     op.device.index = static_cast<uint8_t>(v[8]);
                     op.bytes = v[9];
                     op.storage_bytes = v[10];
                     op.stack = {u32(11)};
                   }) &&
         varying_.bind(
             {{t.address()}, {t.storage()}, {t.storage_offset()}, {t.generation()}, {t.version()}},
             rows());
}

bool OpRows::next(EventHeader header, Event& event) {
  const auto& v = varying_[row()];
  const bool known = SignatureRows::next(header, event);
  auto& op = std::get<Op>(event);
  op.address = v[0];
  op.value = {
      .storage = v[1], .offset = v[2], .generation = v[3], .version = static_cast<uint32_t>(v[4])};
  return known;
}

}  // namespace convtrace::reader

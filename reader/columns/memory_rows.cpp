#include "reader/columns/memory_rows.h"

#include "reader/columns/enums.h"

namespace convtrace::reader {

using namespace format;

template <typename Memory>
bool MemoryRows<Memory>::bind(const wire::MemoryColumns* table, size_t row_count) {
  row_ = 0;
  signatures_.clear();
  generations_.assign(1, 0);
  if (table == nullptr) return row_count == 0;
  const wire::MemoryColumns& t = *table;
  if (!rows_.bind(t.back(), row_count)) return false;
  const StoredColumn columns[] = {{t.bytes(), 8},        {t.source(), 1}, {t.device_type(), 1},
                                  {t.device_index(), 1}, {t.stream(), 8}, {t.stack(), 4}};
  const bool fits = each_row(columns, rows_.signature_count(), [this](const auto& v) {
    Signature& made = signatures_.emplace_back();
    Enums enums;
    made.event.bytes = v[0];
    enums.set(made.event.source, v[1]);
    enums.set(made.event.device.type, v[2]);
    made.event.device.index = static_cast<uint8_t>(v[3]);
    made.event.stream = v[4];
    made.event.stack = {static_cast<uint32_t>(v[5])};
    made.known = enums.known;
  });
  if (!fits || !varying_.bind({{t.address()}, {t.generation()}}, rows_)) return false;
  generations_.resize(row_count + 1);
  for (size_t row = 0; row < row_count; ++row) {
    generations_[row + 1] = generations_[row] + varying_[row][1];
  }
  return true;
}

template class MemoryRows<Alloc>;
template class MemoryRows<Free>;

bool CopyRows::bind(const wire::CopyColumns* table, size_t row_count) {
  row_ = 0;
  signatures_.clear();
  if (table == nullptr) return row_count == 0;
  const wire::CopyColumns& t = *table;
  if (!rows_.bind(t.back(), row_count)) return false;
  const StoredColumn columns[] = {{t.kind(), 1}, {t.bytes(), 8}, {t.stream(), 8}};
  return each_row(columns, rows_.signature_count(),
                  [this](const auto& v) {
                    Signature& made = signatures_.emplace_back();
                    Enums enums;
                    enums.set(made.event.kind, v[0]);
                    made.event.bytes = v[1];
                    made.event.stream = v[2];
                    made.known = enums.known;
                  }) &&
         varying_.bind({{t.destination()}, {t.source()}}, rows_);
}

bool CopyRows::next(EventHeader header, Event& event) {
  const size_t row = row_++;
  const Signature& signature = signatures_[rows_.signature(row)];
  auto& copy = event.emplace<Copy>(signature.event);
  copy.header = header;
  copy.destination = varying_[row][0];
  copy.source = varying_[row][1];
  return signature.known;
}

}  // namespace convtrace::reader

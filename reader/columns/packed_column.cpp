#include "reader/columns/packed_column.h"

#include "format/schema/conventions.h"

namespace convtrace::reader {

std::optional<PackedParts> PackedParts::of(const PackedBytes& stored, size_t row_count,
                                           size_t max_width) {
  const uint8_t head = stored[0];
  const size_t width = head & wire::kPackedWidthMask;
  if (width == 0 || width > max_width || (head & wire::kPackedReserved) != 0) return {};
  const bool dense = (head & wire::kPackedDense) != 0;
  const size_t bitmap_bytes = dense ? 0 : (row_count + 7) / 8;
  const size_t rest = stored.size() - 1;
  if (rest < bitmap_bytes || (rest - bitmap_bytes) % width != 0) return {};
  const size_t count = (rest - bitmap_bytes) / width;
  if (dense && count != row_count) return {};
  const uint8_t* bitmap = stored.data() + 1;
  return PackedParts{dense ? nullptr : bitmap, bitmap + bitmap_bytes, count, width};
}

void PackedParts::read(size_t index, std::array<uint64_t, kBlock>& to) const {
  const uint8_t* plane = planes + index;
  const size_t size = std::min(kBlock, count - index);
  for (size_t i = 0; i < size; ++i) to[i] = plane[i];
  for (size_t shift = 8; shift < 8 * width; shift += 8) {
    plane += count;
    for (size_t i = 0; i < size; ++i) to[i] |= uint64_t{plane[i]} << shift;
  }
}

bool PackedColumn::bind(const PackedBytes* stored, size_t row_count, size_t max_width) {
  entries_.clear();
  next_ = 0;
  const bool good = each_value(stored, row_count, max_width, [this](size_t row, uint64_t value) {
    entries_.push_back({value, static_cast<uint32_t>(row)});
  });
  if (!good) entries_.clear();
  entries_.push_back({});
  return good;
}

}  // namespace convtrace::reader

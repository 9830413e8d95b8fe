#include "reader/columns/packed_column.h"

#include <algorithm>
#include <bit>
#include <span>

#include "format/base/bytes.h"
#include "format/schema/conventions.h"

namespace convtrace::reader {
namespace {

constexpr size_t bitmap_bytes(size_t rows) { return (rows + 7) / 8; }

/// Calls `visit` with the number of each bit that is set. @return whether all are below `rows`.
template <typename Visit>
bool each_bit(const uint8_t* bitmap, size_t rows, Visit visit) {
  const size_t size = bitmap_bytes(rows);
  for (size_t begin = 0; begin < size; begin += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bitmap + begin, std::min(sizeof word, size - begin));
    for (; word != 0; word &= word - 1) {
      const size_t bit = begin * 8 + static_cast<size_t>(std::countr_zero(word));
      if (bit >= rows) return false;
      visit(static_cast<uint32_t>(bit));
    }
  }
  return true;
}

}  // namespace

bool PackedColumn::bind(const PackedBytes* stored, size_t row_count, size_t max_width) {
  entries_.clear();
  next_ = 0;
  const bool all_zero = stored == nullptr || stored->size() == 0;
  const bool good = all_zero || unpack(*stored, row_count, max_width);
  if (!good) entries_.clear();
  entries_.push_back({});
  return good;
}

bool PackedColumn::unpack(const PackedBytes& stored, size_t row_count, size_t max_width) {
  std::span<const uint8_t> from(stored.data(), stored.size());
  const uint8_t head = from[0];
  from = from.subspan(1);
  const size_t width = head & wire::kPackedWidthMask;
  if (width == 0 || width > max_width || (head & wire::kPackedReserved) != 0) return false;
  if ((head & wire::kPackedDense) != 0) {
    if (from.size() != row_count * width) return false;
    entries_.resize(row_count);
    for (uint32_t row = 0; row < row_count; ++row) entries_[row].row = row;
  } else {
    const size_t bitmap = bitmap_bytes(row_count);
    if (from.size() < bitmap) return false;
    const auto stored_row = [this](uint32_t row) { entries_.push_back({0, row}); };
    if (!each_bit(from.data(), row_count, stored_row)) return false;
    from = from.subspan(bitmap);
    if (from.size() != entries_.size() * width) return false;
  }
  const uint8_t* plane = from.data();
  for (size_t shift = 0; shift < 8 * width; shift += 8) {
    for (Entry& entry : entries_) entry.value |= uint64_t{*plane++} << shift;
  }
  return true;
}

}  // namespace convtrace::reader

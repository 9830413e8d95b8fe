#include "format/file/columns/packed_column.h"

#include <algorithm>
#include <bit>

#include "format/schema/conventions.h"

namespace convtrace::format {

void PackedColumn::grow() { entries_.resize(std::max<size_t>(16, 2 * entries_.size())); }

size_t PackedColumn::width() const { return (static_cast<size_t>(std::bit_width(any_)) + 7) / 8; }

size_t PackedColumn::packed_bytes(size_t row_count) const {
  if (stored_ == 0) return 0;
  const bool dense = stored_ == row_count;
  return 1 + (dense ? 0 : (row_count + 7) / 8) + stored_ * width();
}

std::vector<uint8_t> PackedColumn::pack(size_t row_count) const {
  std::vector<uint8_t> out(packed_bytes(row_count));
  if (stored_ == 0) return out;
  uint8_t* to = out.data();
  const bool dense = stored_ == row_count;
  *to++ = static_cast<uint8_t>(width() | (dense ? wire::kPackedDense : 0));
  if (!dense) {
    size_t place = 0;
    // The byte at `place`, in a register: in memory each row would wait for a store.
    unsigned bits = 0;
    for (const Entry& entry : stored()) {
      bits = (entry.row / 8 == place ? bits : 0) | 1u << entry.row % 8;
      place = entry.row / 8;
      to[place] = static_cast<uint8_t>(bits);
    }
    to += (row_count + 7) / 8;
  }
  for (size_t shift = 0; shift < 8 * width(); shift += 8) {
    for (const Entry& entry : stored()) *to++ = static_cast<uint8_t>(entry.value >> shift);
  }
  return out;
}

}  // namespace convtrace::format

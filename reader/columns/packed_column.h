#pragma once
/// @file packed_column.h
/// A packed column of a verified chunk: where it is not zero, and what it holds there.
///
/// Place:    the rows of reader/columns/; format/columns/packed_column.h is its mirror.
/// Errors:   reading it once through finds everything that can be wrong.
/// Source:   format/FORMAT.md section 6.1.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "format/schema/chunk_generated.h"

namespace convtrace::reader {

namespace wire = format::wire;

using PackedBytes = flatbuffers::Vector<uint8_t>;

/// The parts of a stored column, not empty.
struct PackedParts {
  /// @return none if they do not fit `row_count` rows of up to `max_width` bytes. Whether the
  /// bitmap says as many rows as are stored, only who reads it finds.
  static std::optional<PackedParts> of(const PackedBytes& stored, size_t row_count,
                                       size_t max_width);

  static constexpr size_t kBlock = 64;
  /// Reads the values from `index` on, as many as there are and `to` can hold.
  void read(size_t index, std::array<uint64_t, kBlock>& to) const;

  const uint8_t* bitmap;  ///< none: all rows are stored
  const uint8_t* planes;
  size_t count;  ///< of stored values
  size_t width;  ///< bytes of a value
};

/// Calls `visit` with row and value of each row that is stored, ascending; the others are zero.
/// @param max_width  bytes that a value may have.
/// @return whether the column holds exactly `row_count` rows; if not, some may have been visited.
template <typename Visit>
[[nodiscard]] bool each_value(const PackedBytes* stored, size_t row_count, size_t max_width,
                              Visit visit) {
  if (stored == nullptr || stored->size() == 0) return true;
  const auto parts = PackedParts::of(*stored, row_count, max_width);
  if (!parts) return false;
  std::array<uint64_t, PackedParts::kBlock> block;
  size_t next = 0;
  const auto take = [&] {
    const size_t place = next++ % block.size();
    if (place == 0) parts->read(next - 1, block);
    return block[place];
  };
  if (parts->bitmap == nullptr) {
    for (size_t row = 0; row < row_count; ++row) visit(row, take());
    return true;
  }
  for (size_t begin = 0; begin < row_count; begin += 64) {
    uint64_t word = 0;
    const size_t bytes = (std::min<size_t>(row_count - begin, 64) + 7) / 8;
    std::memcpy(&word, parts->bitmap + begin / 8, bytes);
    for (; word != 0; word &= word - 1) {
      const size_t row = begin + static_cast<size_t>(std::countr_zero(word));
      if (row >= row_count || next == parts->count) return false;
      visit(row, take());
    }
  }
  return next == parts->count;
}

/// Read row by row, beside other columns.
///
/// Memory: 16 bytes a value that is stored.
class PackedColumn {
 public:
  /// Unpacks the column, which is left at its first row. @return as each_value.
  [[nodiscard]] bool bind(const PackedBytes* stored, size_t row_count,
                          size_t max_width = sizeof(uint64_t));

  /// @return the first row at or after the current one that is stored; kNone: there is none.
  [[nodiscard]] uint32_t next_row() const { return entries_[next_].row; }
  static constexpr uint32_t kNone = UINT32_MAX;

  /// Moves behind next_row(). @return its value. @pre next_row() != kNone
  [[nodiscard]] uint64_t take() { return entries_[next_++].value; }

  /// @param row  ascends from call to call, none left out. @return the row's value.
  [[nodiscard]] uint64_t at(size_t row) { return row == next_row() ? take() : 0; }

 private:
  struct Entry {
    uint64_t value = 0;
    uint32_t row = kNone;
  };
  std::vector<Entry> entries_ = {Entry{}};  ///< ends with one of row kNone
  size_t next_ = 0;
};

}  // namespace convtrace::reader

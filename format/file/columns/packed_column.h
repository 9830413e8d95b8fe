#pragma once
/// @file packed_column.h
/// One column of a chunk while it is collected: numbers most of which are zero, and small
/// otherwise.
///
/// Place:    the columns of format/file/columns/; reader/columns/packed_column.h is its mirror.
/// Why:      what is predicted rightly is a zero and costs neither time nor bytes here. The others
///           are stored byte plane by byte plane, so that zstd sees the bytes that repeat together.
/// Threads:  one owner thread.
/// Source:   format/FORMAT.md section 6.1.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace convtrace::format {

class PackedColumn {
 public:
  /// @param row  ascends from call to call; rows that are not put are zero.
  void put(size_t row, uint64_t value) {
    // Whether a prediction holds cannot be predicted, so there is no branch on it.
    if (stored_ == entries_.size()) grow();
    entries_[stored_] = {value, static_cast<uint32_t>(row)};
    stored_ += value != 0 ? 1 : 0;
    any_ |= value;
  }

  /// @return bytes that pack() will give.
  [[nodiscard]] size_t packed_bytes(size_t row_count) const;

  /// @param row_count  rows of the column, with the zeros after the last one put.
  /// @return the column as it is stored; empty when all of it is zero.
  [[nodiscard]] std::vector<uint8_t> pack(size_t row_count) const;

  /// Forgets the rows, keeps the memory.
  void clear() {
    stored_ = 0;
    any_ = 0;
  }

 private:
  struct Entry {
    uint64_t value = 0;
    uint32_t row = 0;
  };
  void grow();
  [[nodiscard]] std::span<const Entry> stored() const { return {entries_.data(), stored_}; }
  [[nodiscard]] size_t width() const;

  std::vector<Entry> entries_;  ///< the non-zero ones, and room for more
  size_t stored_ = 0;           ///< how many are filled
  uint64_t any_ = 0;            ///< all values or'ed
};

}  // namespace convtrace::format

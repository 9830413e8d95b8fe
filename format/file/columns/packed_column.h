#pragma once
/// @file packed_column.h
/// Collects one column of a chunk: numbers that are mostly zero or small.
///
/// Place:    the columns of format/file/columns/; reader/columns/packed_column.h is its mirror.
/// Why:      a correct prediction is a zero and costs neither time nor bytes here. All other
///           numbers are stored in byte planes, so that zstd sees repeated bytes together.
/// Threads:  one owner thread.
/// Source:   format/FORMAT.md section 6.1.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace convtrace::format {

class PackedColumn {
 public:
  /// @param row  greater than in the call before; rows without a call are zero.
  void put(size_t row, uint64_t value) {
    // Without a branch on `value`: the processor could not predict it.
    if (stored_ == entries_.size()) grow();
    entries_[stored_] = {value, static_cast<uint32_t>(row)};
    stored_ += value != 0 ? 1 : 0;
    any_ |= value;
  }

  /// @return the number of bytes that pack() returns.
  [[nodiscard]] size_t packed_bytes(size_t row_count) const;

  /// @param row_count  rows of the column, including zeros at its end.
  /// @return the stored form of the column; empty when all rows are zero.
  [[nodiscard]] std::vector<uint8_t> pack(size_t row_count) const;

  /// Removes the rows and keeps the memory.
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

  std::vector<Entry> entries_;  ///< the non-zero entries, with spare capacity
  size_t stored_ = 0;           ///< number of entries in use
  uint64_t any_ = 0;            ///< bitwise or of all values
};

}  // namespace convtrace::format

#pragma once
/// @file packed_column.h
/// A packed column of a verified chunk: where it is not zero, and what it holds there.
///
/// Place:    the rows of reader/columns/; format/columns/packed_column.h is its mirror.
/// Errors:   bind() finds everything that can be wrong; reading cannot fail.
/// Memory:   12 bytes a value that is not zero.
/// Source:   format/FORMAT.md section 6.1.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "format/schema/chunk_generated.h"

namespace convtrace::reader {

namespace wire = format::wire;

using PackedBytes = flatbuffers::Vector<uint8_t>;

class PackedColumn {
 public:
  /// Unpacks the column, which is left at its first row.
  /// @param stored     nothing: all rows are zero.
  /// @param max_width  bytes that a value may have.
  /// @return whether it holds exactly `row_count` rows.
  [[nodiscard]] bool bind(const PackedBytes* stored, size_t row_count,
                          size_t max_width = sizeof(uint64_t));

  /// @return the first row at or after the current one that is not zero; kNone: there is none.
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
  [[nodiscard]] bool unpack(const PackedBytes& stored, size_t row_count, size_t max_width);

  std::vector<Entry> entries_ = {Entry{}};  ///< ends with one of row kNone
  size_t next_ = 0;
};

}  // namespace convtrace::reader

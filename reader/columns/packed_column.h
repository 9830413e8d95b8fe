#pragma once
/// @file packed_column.h
/// Reads a packed column of a verified chunk once, from its first row to its last: either in blocks
/// of rows with read(), or with the other functions from one stored row to the next, while all
/// others are zero.
///
/// Place:    the rows of reader/columns/; format/file/columns/packed_column.h is its mirror.
/// Errors:   bind() detects everything that can be wrong.
/// Source:   format/FORMAT.md section 6.1.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "format/schema/chunk_generated.h"

namespace convtrace::reader {

namespace wire = format::wire;

using PackedBytes = flatbuffers::Vector<uint8_t>;

class PackedColumn {
 public:
  static constexpr size_t kBlock = 64;
  using Block = std::array<uint64_t, kBlock>;
  static constexpr uint32_t kNone = UINT32_MAX;

  /// Sets the column and moves to its first row.
  /// @param stored     borrowed.
  /// @param max_width  the most bytes that a value may have.
  /// @return whether it has exactly `row_count` rows; if not, the column has no rows.
  [[nodiscard]] bool bind(const PackedBytes* stored, size_t row_count,
                          size_t max_width = sizeof(uint64_t));

  /// @return whether all rows are zero.
  [[nodiscard]] bool empty() const { return count_ == 0; }

  /// Reads the next kBlock rows; the contents after the last row are undefined. @pre not empty()
  void read(Block& rows);

  /// @return the first stored row at or after the current one; kNone if there is none.
  [[nodiscard]] uint32_t next_row() const { return row_; }

  /// Moves past next_row(). @return the value of that row. @pre next_row() != kNone
  [[nodiscard]] uint64_t take() {
    const uint64_t value = values_[next_ % kBlock];
    if (++next_ % kBlock == 0) unpack(next_, values_);
    word_ &= word_ - 1;
    find_row();
    return value;
  }

  /// Reads all stored rows before `end`: visit(row, value).
  template <typename Visit>
  void take_before(size_t end, const Visit& visit) {
    while (row_ < end) {
      // Local copies of the members that change, which `visit` cannot write to.
      const size_t begin = begin_;
      const uint64_t before =
          end - begin < kBlock ? (uint64_t{1} << (end - begin)) - 1 : UINT64_MAX;
      uint64_t taken = word_ & before;
      word_ &= ~before;
      size_t next = next_;
      for (; taken != 0; taken &= taken - 1) {
        visit(begin + static_cast<size_t>(std::countr_zero(taken)), values_[next % kBlock]);
        if (++next % kBlock == 0) unpack(next, values_);
      }
      next_ = next;
      find_row();
    }
  }

  /// @param row  ascending, without gaps, from call to call. @return the value of the row.
  [[nodiscard]] uint64_t at(size_t row) { return row == row_ ? take() : 0; }

 private:
  [[nodiscard]] bool parse(const PackedBytes& stored, size_t max_width);
  /// @return a bit for each of the rows from `begin` on, as many as fit.
  [[nodiscard]] uint64_t stored_rows(size_t begin) const {
    if (row_count_ - begin < kBlock) return last_stored_rows(begin);
    uint64_t word = UINT64_MAX;
    if (bitmap_ != nullptr) std::memcpy(&word, bitmap_ + begin / 8, sizeof word);
    return word;
  }
  [[nodiscard]] uint64_t last_stored_rows(size_t begin) const;
  void unpack(size_t index, Block& to) const;

  /// Moves to the row of the lowest set bit in word_, or in the words behind it.
  void find_row() {
    while (word_ == 0) {
      begin_ += kBlock;
      if (begin_ >= row_count_) {
        row_ = kNone;
        return;
      }
      word_ = stored_rows(begin_);
    }
    row_ = static_cast<uint32_t>(begin_) + static_cast<uint32_t>(std::countr_zero(word_));
  }

  size_t row_count_ = 0;
  const uint8_t* bitmap_ = nullptr;  ///< null: all rows are stored
  const uint8_t* planes_ = nullptr;
  size_t count_ = 0;   ///< number of stored values
  size_t width_ = 0;   ///< bytes of a value
  size_t next_ = 0;    ///< index of the value to return next
  size_t block_ = 0;   ///< row that read() returns next
  size_t begin_ = 0;   ///< row of the lowest bit of word_
  uint64_t word_ = 0;  ///< which of kBlock rows are stored and not read yet
  uint32_t row_ = kNone;
  Block values_;  ///< the values around next_, if there are any
};

}  // namespace convtrace::reader

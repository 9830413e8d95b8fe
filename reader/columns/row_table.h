#pragma once
/// @file row_table.h
/// Decodes the rows of one kind of event from signatures and differences.
///
/// Place:    the rows of reader/columns/; format/file/columns/row_columns.h is its mirror.
/// Errors:   bind functions detect everything that can be wrong with a hostile chunk.
/// Source:   format/FORMAT.md section 6.2.

#include <algorithm>
#include <array>
#include <vector>

#include "format/schema/conventions.h"
#include "reader/columns/packed_column.h"

namespace convtrace::reader {

/// For each row, its signature and the similar row before it.
class LikeTable {
 public:
  /// @return whether every reference leads to an earlier row.
  [[nodiscard]] bool bind(const PackedBytes* back, size_t row_count) {
    rows_.resize(row_count);
    signature_count_ = 0;
    if (!back_.bind(back, row_count)) return false;
    size_t distance = 0;
    for (uint32_t row = 0; row < row_count; ++row) {
      distance += format::wire::unzigzag(back_.at(row));
      if (distance > row) return false;
      const auto like = static_cast<uint32_t>(row - distance);
      rows_[row] = {like, distance == 0 ? signature_count_++ : rows_[like].signature};
    }
    return true;
  }

  [[nodiscard]] size_t row_count() const { return rows_.size(); }
  [[nodiscard]] size_t signature_count() const { return signature_count_; }
  [[nodiscard]] uint32_t signature(size_t row) const { return rows_[row].signature; }
  /// @return the similar row; `row` itself if it is the first with its signature.
  [[nodiscard]] uint32_t like(size_t row) const { return rows_[row].like; }

 private:
  struct Row {
    uint32_t like, signature;
  };
  PackedColumn back_;
  std::vector<Row> rows_;
  uint32_t signature_count_ = 0;
};

/// A column and the most bytes that its values may have.
struct StoredColumn {
  const PackedBytes* bytes = nullptr;
  size_t max_width = sizeof(uint64_t);
};

/// A block of rows with N columns.
template <size_t N>
using ColumnBlocks = std::array<PackedColumn::Block, N>;

/// A row of a block. `row[i]` is its value in column i.
template <size_t N>
struct BlockRow {
  const ColumnBlocks<N>& blocks;
  size_t place;

  uint64_t operator[](size_t column) const { return blocks[column][place]; }
};

/// Reads `columns`, of `row_count` rows each, in parallel.
/// @param visit  called with a BlockRow for each row.
/// @return whether all columns have that many rows; if not, no row was visited.
template <size_t N, typename Visit>
[[nodiscard]] bool each_row(const std::array<StoredColumn, N>& columns, size_t row_count,
                            Visit visit) {
  std::array<PackedColumn, N> readers;
  ColumnBlocks<N> blocks;
  for (size_t i = 0; i < N; ++i) {
    if (!readers[i].bind(columns[i].bytes, row_count, columns[i].max_width)) return false;
    if (readers[i].empty()) blocks[i].fill(0);
  }
  for (size_t begin = 0; begin < row_count; begin += PackedColumn::kBlock) {
    for (size_t i = 0; i < N; ++i) {
      if (!readers[i].empty()) readers[i].read(blocks[i]);
    }
    const size_t count = std::min(PackedColumn::kBlock, row_count - begin);
    for (size_t place = 0; place < count; ++place) visit(BlockRow<N>{blocks, place});
  }
  return true;
}

/// Decodes the columns that store differences.
template <size_t V>
class VaryingTable {
 public:
  using Row = std::array<uint64_t, V>;

  /// @return whether each column has as many rows as `rows`.
  [[nodiscard]] bool bind(const std::array<StoredColumn, V>& columns, const LikeTable& rows) {
    values_.resize(rows.row_count() + 1);
    size_t row = 0;
    return each_row(columns, rows.row_count(), [&](const BlockRow<V>& differences) {
      const size_t like = rows.like(row);
      const Row& from = values_[like == row ? 0 : like + 1];
      Row& values = values_[++row];
      for (size_t i = 0; i < V; ++i) values[i] = from[i] + format::wire::unzigzag(differences[i]);
    });
  }
  void clear() { values_.assign(1, {}); }

  /// Replaces each value of a column by the sum of all values up to it.
  void add_up(size_t column) {
    for (size_t i = 1; i < values_.size(); ++i) values_[i][column] += values_[i - 1][column];
  }

  [[nodiscard]] const Row& operator[](size_t row) const { return values_[row + 1]; }
  /// @return the last of the first `count` rows; zeros: there is none.
  [[nodiscard]] const Row& after(size_t count) const { return values_[count]; }

 private:
  std::vector<Row> values_ = std::vector<Row>(1);  ///< after a row of zeros
};

}  // namespace convtrace::reader

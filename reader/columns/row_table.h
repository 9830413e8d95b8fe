#pragma once
/// @file row_table.h
/// The rows of one event kind, put together again from signatures and differences.
///
/// Place:    the rows of reader/columns/; format/columns/row_columns.h is its mirror.
/// Errors:   bind functions find everything that can be wrong with a hostile chunk.
/// Source:   format/FORMAT.md section 6.2.

#include <array>
#include <vector>

#include "format/schema/conventions.h"
#include "reader/columns/packed_column.h"

namespace convtrace::reader {

/// Which signature each row has, and the earlier row that it is like.
class LikeTable {
 public:
  /// @return whether every row leads to one before it.
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
  /// @return the earlier row; `row` itself if it is the first of its signature.
  [[nodiscard]] uint32_t like(size_t row) const { return rows_[row].like; }

 private:
  struct Row {
    uint32_t like, signature;
  };
  PackedColumn back_;
  std::vector<Row> rows_;
  uint32_t signature_count_ = 0;
};

/// A column and how many bytes a value of it may have.
struct StoredColumn {
  const PackedBytes* bytes;
  size_t max_width = sizeof(uint64_t);
};

/// Reads `columns`, of `row_count` rows each, into one array a row. @return whether all fit.
template <size_t N>
[[nodiscard]] bool read_rows(const StoredColumn (&columns)[N], size_t row_count,
                             std::vector<std::array<uint64_t, N>>& to) {
  to.assign(row_count, {});
  for (size_t i = 0; i < N; ++i) {
    const auto set = [&to, i](size_t row, uint64_t value) { to[row][i] = value; };
    if (!each_value(columns[i].bytes, row_count, columns[i].max_width, set)) return false;
  }
  return true;
}

/// As read_rows. @param visit  gets the array of each row.
template <size_t N, typename Visit>
[[nodiscard]] bool each_row(const StoredColumn (&columns)[N], size_t row_count, Visit visit) {
  std::vector<std::array<uint64_t, N>> rows;
  if (!read_rows(columns, row_count, rows)) return false;
  for (const std::array<uint64_t, N>& row : rows) visit(row);
  return true;
}

/// The columns of differences, undone.
template <size_t V>
class VaryingTable {
 public:
  using Row = std::array<uint64_t, V>;

  /// @return whether each column has the rows of `rows`.
  [[nodiscard]] bool bind(const StoredColumn (&columns)[V], const LikeTable& rows) {
    if (!read_rows(columns, rows.row_count(), values_)) return false;
    for (size_t row = 0; row < values_.size(); ++row) {
      Row& values = values_[row];
      for (uint64_t& value : values) value = format::wire::unzigzag(value);
      const uint32_t like = rows.like(row);
      if (like == row) continue;
      for (size_t i = 0; i < V; ++i) values[i] += values_[like][i];
    }
    return true;
  }

  [[nodiscard]] const Row& operator[](size_t row) const { return values_[row]; }

 private:
  std::vector<Row> values_;
};

}  // namespace convtrace::reader

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
    PackedColumn column;
    rows_.clear();
    signature_count_ = 0;
    if (!column.bind(back, row_count)) return false;
    size_t distance = 0;
    for (uint32_t row = 0; row < row_count; ++row) {
      distance += format::wire::unzigzag(column.at(row));
      if (distance > row) return false;
      const auto like = static_cast<uint32_t>(row - distance);
      rows_.push_back({like, distance == 0 ? signature_count_++ : rows_[like].signature});
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
  std::vector<Row> rows_;
  uint32_t signature_count_ = 0;
};

/// A fixed column: where it is stored and how many bytes a value may have.
struct FixedColumn {
  const PackedBytes* stored;
  size_t width;
};

/// Reads `columns` row by row. @return whether all fit; `visit` gets an array of their values.
template <size_t N, typename Visit>
[[nodiscard]] bool each_row(const FixedColumn (&columns)[N], size_t row_count, Visit visit) {
  std::array<PackedColumn, N> bound;
  for (size_t i = 0; i < N; ++i) {
    if (!bound[i].bind(columns[i].stored, row_count, columns[i].width)) return false;
  }
  std::array<uint64_t, N> values;
  for (size_t row = 0; row < row_count; ++row) {
    for (size_t i = 0; i < N; ++i) values[i] = bound[i].at(row);
    visit(values);
  }
  return true;
}

/// The columns of differences, undone row by row.
template <size_t V>
class VaryingTable {
 public:
  using Row = std::array<uint64_t, V>;

  [[nodiscard]] bool bind(const PackedBytes* const (&columns)[V], size_t row_count) {
    history_.clear();
    for (size_t i = 0; i < V; ++i) {
      if (!columns_[i].bind(columns[i], row_count)) return false;
    }
    return true;
  }

  /// @param row   ascends from call to call, none left out.
  const Row& next(size_t row, const LikeTable& rows) {
    const uint32_t like = rows.like(row);
    history_.push_back(like == row ? Row{} : history_[like]);
    Row& values = history_.back();
    for (size_t i = 0; i < V; ++i) values[i] += format::wire::unzigzag(columns_[i].at(row));
    return values;
  }

 private:
  std::array<PackedColumn, V> columns_;
  std::vector<Row> history_;
};

}  // namespace convtrace::reader

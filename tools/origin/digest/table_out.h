#pragma once
/// @file table_out.h
/// Rows of rows.h to the blocks of a digest (table_codec.h).
///
/// Threads:   one.

#include <string>
#include <string_view>
#include <vector>

#include "tools/origin/digest/table_codec.h"

namespace convtrace::origin {

/// Collects rows of one member each.
template <typename Row>
class TableOut {
 public:
  /// @param names  of the rows' texts; borrowed.
  explicit TableOut(const format::Definitions& names) : names_(names) {}

  void add(const Row& row) {
    at_ = 0;
    ++rows_;
    Row::of_row(row, *this);
    Row::of_member(row, *this);
  }
  /// @param table  the number of Row. @return the block; nothing is left here.
  [[nodiscard]] std::string take(uint32_t table) {
    std::string block;
    for (uint32_t i = 0; i < rows_; ++i) append(block, uint32_t{1});
    for (Column& column : columns_) {
      block += column.values;
      block += column.bytes;
    }
    columns_.clear();
    std::string head;
    append(head, table);
    append(head, rows_);
    append(head, rows_);
    append(head, uint64_t{block.size()});
    rows_ = 0;
    return head + block;
  }
  [[nodiscard]] uint32_t rows() const { return rows_; }

  template <typename T>
  void operator()(const char*, const T& value) {
    if (at_ == columns_.size()) columns_.emplace_back();
    Column& column = columns_[at_++];
    if constexpr (std::is_same_v<T, format::StringId>) {
      append_text(column, names_.text(value), bool{value});
    } else if constexpr (std::is_same_v<T, std::string>) {
      append_text(column, value, true);
    } else if constexpr (kIsBody<T>) {
      std::remove_reference_t<decltype(value.of)>::of_body(
          value.of, [&](const char*, const auto& field) { append(column.values, field); });
    } else {
      append(column.values, value);
    }
  }

 private:
  struct Column {
    std::string values, bytes;
  };

  template <typename T>
  static void append(std::string& to, const T& value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void append_text(Column& column, std::string_view text, bool known) {
    append(column.values, known ? static_cast<uint32_t>(text.size()) : kNoText);
    if (known) column.bytes += text;
  }

  const format::Definitions& names_;
  std::vector<Column> columns_;
  size_t at_ = 0;
  uint32_t rows_ = 0;
};

}  // namespace convtrace::origin

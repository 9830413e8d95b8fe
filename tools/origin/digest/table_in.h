#pragma once
/// @file table_in.h
/// Blocks of a digest (table_codec.h) back to rows of rows.h.
///
/// Errors:    a file is not trusted: invalid content is refused, and nothing is read past its end.
/// Threads:   one.

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tools/origin/digest/table_codec.h"

namespace convtrace::origin {

/// @return whether bytes are a value of the type.
template <typename T>
[[nodiscard]] bool load_column(const std::byte* from, T& to) {
  if constexpr (std::is_same_v<T, bool>) {
    const auto byte = load_le<uint8_t>(from);
    to = byte != 0;
    return byte <= 1;
  } else if constexpr (std::is_enum_v<T>) {
    const auto number = load_le<std::underlying_type_t<T>>(from);
    to = static_cast<T>(number);
    return number < kEnumLimit<T>;
  } else {
    to = load_le<T>(from);
    return true;
  }
}

/// Takes a block apart.
template <typename Row>
class TableIn {
 public:
  /// @param names  gets the texts; borrowed.
  TableIn(const Block& block, format::Definitions& names) : block_(block), names_(names) {}

  /// @param take  called for each member of each row, with a row that it may keep.
  /// @return false if the block is invalid; `take` may have been called.
  template <typename Take>
  [[nodiscard]] bool each(const Take& take) {
    Row row;
    const auto sizes = cut(block_.rows, sizeof(uint32_t));
    if (!lay_out(row)) return false;
    // Members without columns take no bytes, so nothing else bounds their number.
    if (columns_.size() == row_columns_ && block_.members != block_.rows) return false;
    uint64_t next = 0;
    for (uint32_t i = 0; i < block_.rows; ++i) {
      at_ = 0;
      entry_ = i;
      Row::of_row(row, *this);
      const auto size = load_le<uint32_t>(sizes.data() + size_t{i} * sizeof(uint32_t));
      if (!good_ || size > block_.members - next) return false;
      for (uint32_t j = 0; j < size; ++j) {
        at_ = row_columns_;
        entry_ = next++;
        Row::of_member(row, *this);
        if (!good_) return false;
        take(row);
      }
    }
    return next == block_.members;
  }

  template <typename T>
  void operator()(const char*, T&& value) {
    using Type = std::remove_cvref_t<T>;
    Column& column = columns_[at_++];
    if constexpr (kIsText<Type>) {
      take_text(column, value);
    } else {
      const std::byte* from = column.values.data() + entry_ * column.width;
      if constexpr (kIsBody<Type>) {
        std::remove_reference_t<decltype(value.of)>::of_body(value.of,
                                                             [&](const char*, auto& field) {
                                                               good_ &= load_column(from, field);
                                                               from += sizeof field;
                                                             });
      } else {
        good_ &= load_column(from, value);
      }
    }
  }

 private:
  struct Column {
    Bytes values, texts;
    size_t width = 0, offset = 0;
  };

  Bytes cut(size_t count, size_t width) {
    const size_t left = block_.bytes.size() - begin_;
    if (!good_ || count > left / width) {
      good_ = false;
      return {};
    }
    const Bytes all(block_.bytes);
    const Bytes part = all.subspan(begin_, count * width);
    begin_ += part.size();
    return part;
  }

  bool lay_out(Row& row) {
    const auto add = [this](size_t count) {
      return [this, count](const char*, const auto& value) {
        const size_t width = Describe::width_of(value);
        Column column{.values = cut(count, width == 0 ? sizeof(uint32_t) : width), .texts = {}};
        column.width = width;
        if (width == 0 && good_) {
          size_t sum = 0;
          for (size_t i = 0; i < count; ++i) {
            const auto length = load_le<uint32_t>(column.values.data() + i * sizeof(uint32_t));
            sum += length == kNoText ? 0 : length;
          }
          column.texts = cut(sum, 1);
        }
        columns_.push_back(column);
      };
    };
    Row::of_row(row, add(block_.rows));
    row_columns_ = columns_.size();
    Row::of_member(row, add(block_.members));
    return good_ && begin_ == block_.bytes.size();
  }

  template <typename T>
  void take_text(Column& column, T& value) {
    const auto length = load_le<uint32_t>(column.values.data() + entry_ * sizeof(uint32_t));
    value = T{};
    if (length == kNoText) return;
    const Bytes bytes = column.texts.subspan(column.offset, length);
    column.offset += length;
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if constexpr (std::is_same_v<T, std::string>) {
      value = text;
    } else {
      value = names_.intern(text);
    }
  }

  const Block& block_;
  format::Definitions& names_;
  std::vector<Column> columns_;
  size_t row_columns_ = 0, at_ = 0, begin_ = 0;
  uint64_t entry_ = 0;
  bool good_ = true;
};

}  // namespace convtrace::origin

#pragma once
/// @file table_codec.h
/// Converts rows of rows.h to the blocks of a digest, and back.
///
/// A digest is "CTDIGEST", a u32 and as many bytes of JSON, which names program version, tables,
/// columns and types in their order; then blocks. All numbers are little-endian.
///
///     block   u32 table, u32 rows, u32 members, u64 bytes, then as many bytes:
///             u32 members of each row; the row's columns; the members' columns
///     column  a value of fixed size for each row, or member; for texts all lengths as u32,
///             2^32 - 1 for none, and then all their bytes
///
/// A block of table 2^32 - 1 ends a window: `rows` is its last step.
///
/// Errors:    a file is not trusted: table_in.h refuses invalid content.
/// Threads:   one.

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "format/base/bytes.h"
#include "format/model/definitions.h"
#include "tools/common/json.h"
#include "tools/origin/digest/rows.h"

namespace convtrace::origin {

inline constexpr std::string_view kDigestMagic = "CTDIGEST";
inline constexpr uint32_t kWindowEnd = 0xFFFFFFFF;
inline constexpr uint32_t kNoText = 0xFFFFFFFF;

template <typename T>
inline constexpr size_t kEnumLimit = format::kEnumCount<T>;
template <>
inline constexpr size_t kEnumLimit<BadClass> = 3;
template <>
inline constexpr size_t kEnumLimit<ParameterMoment> = 10;

template <typename T>
inline constexpr bool kIsText =
    std::is_same_v<T, std::string> || std::is_same_v<T, format::StringId>;
template <typename T>
inline constexpr bool kIsBody = false;
template <typename T>
inline constexpr bool kIsBody<Body<T>> = true;

/// One block that was read.
struct Block {
  uint32_t table = 0, rows = 0, members = 0;
  std::vector<std::byte> bytes;
};

/// Names and types of columns, as JSON.
class Describe {
 public:
  template <typename T>
  void operator()(const char* name, const T& value) {
    columns_.push_back({name, type_of(value)});
  }
  [[nodiscard]] tools::Json take() { return std::move(columns_); }

  /// Bytes of a column's value; 0: a text.
  template <typename T>
  [[nodiscard]] static size_t width_of(const T& value) {
    if constexpr (kIsText<T>) {
      return 0;
    } else if constexpr (kIsBody<T>) {
      size_t sum = 0;
      std::remove_reference_t<decltype(value.of)>::of_body(
          value.of, [&sum](const char*, const auto& field) { sum += width_of(field); });
      return sum;
    } else {
      return sizeof(T);
    }
  }

 private:
  template <typename T>
  static std::string type_of(const T& value) {
    if constexpr (kIsText<T>) {
      return "text";
    } else if constexpr (kIsBody<T>) {
      return "bytes" + std::to_string(width_of(value));
    } else {
      const char kind = std::is_floating_point_v<T> ? 'f' : std::is_signed_v<T> ? 'i' : 'u';
      return kind + std::to_string(8 * sizeof(T));
    }
  }

  tools::Json columns_ = tools::Json::array();
};

template <typename Row>
[[nodiscard]] tools::Json table_json() {
  Row row;
  Describe of_row, of_member;
  Row::of_row(row, of_row);
  Row::of_member(row, of_member);
  return {{"name", Row::kName}, {"row", of_row.take()}, {"member", of_member.take()}};
}

/// @return the first object of a digest that this program writes.
[[nodiscard]] tools::Json digest_json();

}  // namespace convtrace::origin

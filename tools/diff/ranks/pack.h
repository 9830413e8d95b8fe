#pragma once
/// @file pack.h
/// Values to bytes and back, for results that one process makes and another joins.
///
/// A type is known by packed(value, visit), which calls visit(member...) with all its members:
/// part_fields.h has those of a result. Numbers are little-endian; a text and a list begin with a
/// u64 of their length, an optional with a byte.
///
/// Errors:    bytes are not trusted: Unpacker::good() is false if they are cut short or no value of
///            their type.
/// Threads:   plain functions.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "format/base/bytes.h"
#include "format/base/named_enum.h"

namespace convtrace::diff {

/// The number of values of an enumeration that format/base/named_enum.h does not know.
template <typename T>
inline constexpr size_t kValues = format::kEnumCount<T>;

template <typename T>
inline constexpr bool kIsNumber = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class Packer {
 public:
  [[nodiscard]] std::string take() { return std::move(bytes_); }

  template <typename... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }

 private:
  template <typename T>
  void put(const T& value) {
    if constexpr (kIsNumber<T>) {
      bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else {
      packed(value, *this);
    }
  }
  void put(const std::string& text) {
    put(uint64_t{text.size()});
    bytes_ += text;
  }
  template <typename T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <typename T>
  void put(const std::vector<T>& list) {
    put(uint64_t{list.size()});
    for (const T& one : list) put(one);
  }
  template <typename T, size_t kSize>
  void put(const std::array<T, kSize>& list) {
    for (const T& one : list) put(one);
  }
  template <typename A, typename B>
  void put(const std::pair<A, B>& pair) {
    put(pair.first);
    put(pair.second);
  }
  template <typename K, typename V>
  void put(const std::map<K, V>& map) {
    put(uint64_t{map.size()});
    for (const auto& entry : map) {
      put(entry.first);
      put(entry.second);
    }
  }

  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(Bytes bytes) : left_(bytes) {}
  /// @return whether all bytes so far were valid.
  [[nodiscard]] bool good() const { return good_; }
  /// @return whether all bytes were valid, and none is left.
  [[nodiscard]] bool done() const { return good_ && left_.empty(); }

  template <typename... T>
  void operator()(T&... values) {
    (get(values), ...);
  }

 private:
  template <typename T>
  void get(T& value) {
    if constexpr (kIsNumber<T>) {
      const Bytes bytes = cut(sizeof value);
      if (!good_) return;
      if constexpr (std::is_enum_v<T>) {
        const auto number = load_le<std::underlying_type_t<T>>(bytes.data());
        good_ = number < kValues<T>;
        if (good_) value = static_cast<T>(number);
      } else if constexpr (std::is_same_v<T, bool>) {
        const auto number = load_le<uint8_t>(bytes.data());
        good_ = number <= 1;
        value = number == 1;
      } else {
        value = load_le<T>(bytes.data());
      }
    } else {
      packed(value, *this);
    }
  }
  void get(std::string& text) {
    const Bytes bytes = cut(size());
    text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  template <typename T>
  void get(std::optional<T>& value) {
    bool has = false;
    get(has);
    value.reset();
    if (good_ && has) get(value.emplace());
  }
  template <typename T>
  void get(std::vector<T>& list) {
    const uint64_t count = size();
    list.clear();
    for (uint64_t i = 0; good_ && i < count; ++i) get(list.emplace_back());
  }
  template <typename T, size_t kSize>
  void get(std::array<T, kSize>& list) {
    for (T& one : list) get(one);
  }
  template <typename A, typename B>
  void get(std::pair<A, B>& pair) {
    get(pair.first);
    get(pair.second);
  }
  template <typename K, typename V>
  void get(std::map<K, V>& map) {
    const uint64_t count = size();
    map.clear();
    for (uint64_t i = 0; good_ && i < count; ++i) {
      K key{};
      get(key);
      get(map[key]);
    }
  }

  /// A length, of things of at least one byte each.
  uint64_t size() {
    uint64_t count = 0;
    get(count);
    good_ &= count <= left_.size();
    return good_ ? count : 0;
  }
  Bytes cut(size_t count) {
    good_ &= count <= left_.size();
    if (!good_) return {};
    const Bytes part = left_.subspan(0, count);
    left_ = left_.subspan(count);
    return part;
  }

  Bytes left_;
  bool good_ = true;
};

}  // namespace convtrace::diff

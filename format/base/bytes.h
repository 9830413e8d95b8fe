#pragma once
/// @file bytes.h
/// Little-endian loads and stores and a few helpers for byte spans.
///
/// Why:      file memory is never cast to a struct: padding and alignment are the compiler's
///           business, not the format's.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace convtrace {

static_assert(std::endian::native == std::endian::little,
              "format version 1 is written and read on little-endian machines only");

using Bytes = std::span<const std::byte>;

/// @pre `from` has sizeof(T) readable bytes; any alignment.
template <typename T>
[[nodiscard]] T load_le(const std::byte* from) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// @pre `to` has sizeof(T) writable bytes; any alignment.
template <typename T>
void store_le(std::byte* to, T value) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(to, &value, sizeof value);
}

/// @return the smallest multiple of `alignment` (a power of two) that is >= value.
/// @pre value <= 2^64 - alignment
[[nodiscard]] constexpr uint64_t align_up(uint64_t value, uint64_t alignment) noexcept {
  return (value + alignment - 1) & ~(alignment - 1);
}

/// @return the bytes of `text`, borrowed.
template <typename Text>
[[nodiscard]] Bytes bytes_of(const Text& text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace convtrace

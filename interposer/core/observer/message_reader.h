#pragma once
/// @file message_reader.h
/// Iterates over a batch of observer messages whose lengths are not trusted.
///
/// Threads:  plain values.
/// Errors:   malformed() after next() returned nothing: the rest does not fit the layout.
/// Source:   observer_abi.h.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>

#include "interposer/abi/observer_abi.h"

namespace convtrace::engine {

/// One message: its kind and all its bytes, with the header.
class Message {
 public:
  explicit Message(std::span<const std::byte> bytes) : bytes_(bytes) {
    std::memcpy(&header_, bytes.data(), sizeof header_);
  }
  [[nodiscard]] uint16_t kind() const { return header_.kind; }

  /// @return the fixed part of the message; nullopt if the message is too short.
  template <typename T>
  [[nodiscard]] std::optional<T> as() const {
    static_assert(std::is_trivially_copyable_v<T>);
    if (bytes_.size() < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data(), sizeof value);
    return value;
  }

  /// Copies `count` elements from `offset` bytes into the message on.
  /// @return false if the message is too short.
  template <typename T>
  [[nodiscard]] bool copy(size_t offset, size_t count, T* out) const {
    static_assert(std::is_trivially_copyable_v<T>);
    if (offset > bytes_.size() || count > (bytes_.size() - offset) / sizeof(T)) return false;
    if (count != 0) std::memcpy(out, bytes_.data() + offset, count * sizeof(T));
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  convtrace_message header_{};
};

class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> batch) : rest_(batch) {}

  /// @return the next message; nullopt at the end, and where the batch is malformed.
  std::optional<Message> next() {
    if (rest_.size() < sizeof(convtrace_message)) return std::nullopt;
    convtrace_message header;
    std::memcpy(&header, rest_.data(), sizeof header);
    if (header.bytes < sizeof header || header.bytes % 8 != 0 || header.bytes > rest_.size())
      return std::nullopt;
    const Message message(rest_.first(header.bytes));
    rest_ = rest_.subspan(header.bytes);
    return message;
  }
  [[nodiscard]] bool malformed() const { return !rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace convtrace::engine

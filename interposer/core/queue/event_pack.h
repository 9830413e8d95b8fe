#pragma once
/// @file event_pack.h
/// An event with everything it borrows as one run of bytes, and back.
///
/// Place:    event_queue.h, so that emit() can copy what callers lend it.
/// Threads:  plain functions.

#include <cstddef>
#include <cstdint>

#include "format/model/events.h"

namespace convtrace::engine {

/// @return bytes that pack() will write, a multiple of 8.
[[nodiscard]] size_t packed_bytes(const format::Event& event) noexcept;

/// Writes the alternative's struct and, behind it, what its spans and texts refer to.
/// @param out aligned to 8, packed_bytes() long.
void pack(const format::Event& event, std::byte* out) noexcept;

/// @param kind event.index() of what was packed.
/// @return the event; its spans and texts refer into `in`.
[[nodiscard]] format::Event unpack(size_t kind, const std::byte* in) noexcept;

/// The header of a packed event: every kind begins with it.
[[nodiscard]] inline format::EventHeader& packed_header(std::byte* packed) noexcept {
  return *reinterpret_cast<format::EventHeader*>(packed);
}
[[nodiscard]] inline const format::EventHeader& packed_header(const std::byte* packed) noexcept {
  return *reinterpret_cast<const format::EventHeader*>(packed);
}

}  // namespace convtrace::engine

#pragma once
/// @file event_pack.h
/// Packs an event, with everything that it borrows, into one run of bytes, and unpacks it.
///
/// Place:    used by event_queue.h, since emit() must copy what its callers lend.
/// Threads:  plain functions.

#include <cstddef>

#include "format/model/events.h"

namespace convtrace::engine {

/// @return the number of bytes that pack() writes, a multiple of 8.
[[nodiscard]] size_t packed_bytes(const format::Event& event) noexcept;

/// Writes the event's struct and, behind it, the contents of its spans and texts.
/// @param out aligned to 8, packed_bytes() long.
void pack(const format::Event& event, std::byte* out) noexcept;

/// @param kind  event.index() of the packed event.
/// @return the event; its spans and texts refer into `in`.
[[nodiscard]] format::Event unpack(size_t kind, const std::byte* in) noexcept;

/// The header of a packed event; every kind of event begins with it.
[[nodiscard]] inline format::EventHeader& packed_header(std::byte* packed) noexcept {
  return *reinterpret_cast<format::EventHeader*>(packed);
}
[[nodiscard]] inline const format::EventHeader& packed_header(const std::byte* packed) noexcept {
  return *reinterpret_cast<const format::EventHeader*>(packed);
}

}  // namespace convtrace::engine

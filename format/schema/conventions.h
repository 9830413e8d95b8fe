#pragma once
/// @file conventions.h
/// Meanings of the schemas' columns beyond their types, shared by encoder and decoder.
///
/// Source:   format/FORMAT.md section 6.

#include <cstddef>
#include <cstdint>

namespace convtrace::format::wire {

/// Value of StatsColumns.rank for a tensor of unknown shape.
inline constexpr uint8_t kRankUnknown = 255;

// First byte of a packed column.
inline constexpr uint8_t kPackedWidthMask = 0x0F;
inline constexpr uint8_t kPackedDense = 0x10;
inline constexpr uint8_t kPackedReserved = 0xE0;

/// Maps small differences of either sign to small numbers.
constexpr uint64_t zigzag(uint64_t difference) {
  return difference << 1 ^ (0 - (difference >> 63));
}
constexpr uint64_t unzigzag(uint64_t stored) { return stored >> 1 ^ (0 - (stored & 1)); }

}  // namespace convtrace::format::wire

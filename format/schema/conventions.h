#pragma once
/// @file conventions.h
/// Meanings of the schemas' columns beyond their types, and the field of each kind of event, shared
/// by encoder and decoder.
///
/// Source:   format/FORMAT.md section 6.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "format/model/events.h"
#include "format/schema/chunk_generated.h"

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

/// @return the id of a field of a table; no valid id if there is no field of this name.
template <typename Table>
constexpr size_t field_of(std::string_view name) {
  const auto& names = Table::Traits::field_names;
  return static_cast<size_t>(std::ranges::find(names, name) - names.begin());
}

/// The field of a kind has the kind's name.
template <typename Kind>
inline constexpr size_t kFieldOf = field_of<Chunk>(std::is_same_v<Kind, Step> ? "step_index"
                                                                              : Kind::kName);

}  // namespace convtrace::format::wire

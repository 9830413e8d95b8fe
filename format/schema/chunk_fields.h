#pragma once
/// @file chunk_fields.h
/// Maps each kind of event to its field of a chunk.

#include <algorithm>
#include <string_view>

#include "format/model/events.h"
#include "format/schema/chunk_generated.h"

namespace convtrace::format::wire {

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

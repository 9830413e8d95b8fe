#pragma once
/// @file kind_set.h
/// Kinds of events, for who wants some of them: columns of the others are not looked at.
///
/// Place:    given to trace_reader.h, handed down to event_decoder.h.

#include <cstdint>
#include <type_traits>
#include <variant>

#include "format/model/events.h"

namespace convtrace::reader {

/// A bit for each alternative of format::Event, by its index.
using KindSet = uint32_t;

inline constexpr KindSet kNoKinds = 0;
inline constexpr KindSet kAllKinds = (KindSet{1} << std::variant_size_v<format::Event>)-1;

namespace detail {
/// @return 0 where no alternative is a Kind.
template <typename Kind, typename... Kinds>
constexpr KindSet bit_of(std::variant<Kinds...>* /*of*/) {
  KindSet bit = 1;
  KindSet found = 0;
  ((found |= std::is_same_v<Kind, Kinds> ? bit : 0, bit <<= 1), ...);
  return found;
}
}  // namespace detail

/// The set of these kinds: `kKindSet<Launch, TensorStats>`.
template <typename... Kinds>
inline constexpr KindSet kKindSet = (detail::bit_of<Kinds>(static_cast<format::Event*>(nullptr)) |
                                     ...);

}  // namespace convtrace::reader

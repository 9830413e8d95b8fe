#pragma once
/// @file kind_set.h
/// Kinds of events, for who wants some of them: columns of the others are not decoded.
///
/// Place:    given to trace_reader.h, handed down to event_decoder.h.

#include <cstdint>

#include "format/model/events.h"

namespace convtrace::reader {

/// A bit for each alternative of format::Event, by its index.
using KindSet = uint32_t;

inline constexpr KindSet kNoKinds = 0;
inline constexpr KindSet kAllKinds = (KindSet{1} << format::kKinds) - 1;

/// The set of these kinds: `kKindSet<Launch, TensorStats>`.
template <typename... Kinds>
inline constexpr KindSet kKindSet = ((KindSet{1} << format::kKindOf<Kinds>) | ...);

/// What is done with a chunk of which no event is wanted.
enum class Unwanted : uint8_t {
  kSkip,   ///< it is not read
  kCheck,  ///< its checksum is verified, so that damage in it is known
};

}  // namespace convtrace::reader

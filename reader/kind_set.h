#pragma once
/// @file kind_set.h
/// A set of kinds of events, for consumers that need only some: columns of other kinds are not
/// decoded.
///
/// Place:    passed to trace_reader.h and from there to event_decoder.h.

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

/// Treatment of a chunk that has no wanted event.
enum class Unwanted : uint8_t {
  kSkip,   ///< do not read it
  kCheck,  ///< verify its checksum, so that damage is detected
};

}  // namespace convtrace::reader

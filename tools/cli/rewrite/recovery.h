#pragma once
/// @file recovery.h
/// Copies the intact parts of a trace into a new, closed trace.
///
/// Chunks are copied as stored, so contents that this version does not know are kept. Only a chunk
/// with events whose definitions are lost is encoded again, without these events. A Loss event with
/// reason kDamage takes the place, and the first number, of missing events.
///
/// Place:    used by recover.cpp.
/// Threads:  one owner thread; decodes with `threads`.
/// Source:   format/FORMAT.md section 7, "Recovering".

#include <memory>

#include "format/file/sink.h"
#include "reader/trace_container.h"

namespace convtrace::tools {

struct Recovered {
  uint64_t chunks = 0;
  uint64_t events = 0;                     ///< without the Loss events for missing ones
  uint64_t bytes = 0;                      ///< size of the new trace
  uint64_t missing_events = 0;             ///< from the numbers that no intact chunk has
  uint64_t events_without_definition = 0;  ///< intact, but with ids that are not defined
};

/// @param trace  opened, not live; further damage is reported to it.
/// @return kNoSpace, kIoError, kOutOfMemory of the new trace.
[[nodiscard]] Result<Recovered> recover(reader::TraceContainer& trace,
                                        std::unique_ptr<format::Sink> sink, unsigned threads);

}  // namespace convtrace::tools

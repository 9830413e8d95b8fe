#pragma once
/// @file recovery.h
/// Copies what is intact of a trace into a new, closed one.
///
/// Chunks are copied as they are stored, so nothing of them is lost that this version does not
/// know; only a chunk with events whose definition is gone is written anew, without these. Where
/// events are missing, a Loss event with reason kDamage takes their place and their first number.
///
/// Place:    recover.cpp.
/// Threads:  one owner thread; decodes with `threads`.
/// Source:   format/FORMAT.md section 7, "Recovering".

#include <memory>

#include "format/file/sink.h"
#include "reader/trace_container.h"

namespace convtrace::tools {

struct Recovered {
  uint64_t chunks = 0;
  uint64_t events = 0;                     ///< without the Loss events that say what is missing
  uint64_t bytes = 0;                      ///< of the new trace
  uint64_t missing_events = 0;             ///< by the numbers that no intact chunk has
  uint64_t events_without_definition = 0;  ///< that are intact, but name what nobody defines
};

/// @param trace  opened, not live; what is found to be damaged is reported to it.
/// @return kNoSpace, kIoError, kOutOfMemory of the new trace.
[[nodiscard]] Result<Recovered> recover(reader::TraceContainer& trace,
                                        std::unique_ptr<format::Sink> sink, unsigned threads);

}  // namespace convtrace::tools

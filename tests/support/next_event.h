#pragma once
/// @file next_event.h
/// Reads the next event of a trace, which must have one.

#include "reader/trace_reader.h"
#include "tests/support/catch.h"

namespace convtrace::test {

/// @return the event, valid until the next one is read.
inline const format::Event& next_of(reader::TraceReader& reader) {
  const format::Event* event = reader.next();
  REQUIRE(event != nullptr);
  return *event;
}

}  // namespace convtrace::test

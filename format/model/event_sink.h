#pragma once
/// @file event_sink.h
/// The interface through which observing code emits events, so that cupti/ and the observer need to
/// know nothing about queues and files.

#include "format/model/events.h"

namespace convtrace::format {

class EventSink {
 public:
  virtual ~EventSink() = default;

  /// Takes one event, and copies everything it needs before it returns.
  ///
  /// Sets header.t_ns and header.thread if they are 0; header.seq is set later, in writing order.
  /// Threads: any, concurrently. Never blocks, never throws; an event that does not fit is counted
  /// as lost.
  virtual void emit(const Event& event) noexcept = 0;
};

}  // namespace convtrace::format

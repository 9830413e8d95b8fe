#pragma once
/// @file event_sink.h
/// The one way by which events leave the code that observes: cupti/ and the observer know nothing
/// of queues and files.

#include "format/model/events.h"

namespace convtrace::format {

class EventSink {
 public:
  virtual ~EventSink() = default;

  /// Takes one event. Copies everything it needs before it returns.
  ///
  /// Fills header.seq later, in writing order; fills header.t_ns and header.thread if they are 0.
  /// Threads: any, concurrently. Never blocks, never throws; what does not fit is counted as lost.
  virtual void emit(const Event& event) noexcept = 0;
};

}  // namespace convtrace::format

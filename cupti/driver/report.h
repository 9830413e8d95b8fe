#pragma once
/// @file report.h
/// Reports a condition to the user: one line in the log and one Diagnostic event in the trace.

#include <cstdint>
#include <cstdio>

#include "format/base/log.h"
#include "format/model/event_sink.h"

namespace convtrace::cupti {

inline void report(format::EventSink& sink, uint32_t step, const Message& message,
                   const char* what) noexcept {
  log_line(message, "%s", what);
  char text[1024];
  snprintf(text, sizeof text, "CT-%u %s", unsigned{message.number}, what);
  format::Diagnostic diagnostic;
  diagnostic.header.step = step;
  diagnostic.level = message.level;
  diagnostic.site = message.site;
  diagnostic.message = text;
  sink.emit(diagnostic);
}

}  // namespace convtrace::cupti

#pragma once
/// @file report.h
/// What people should know of: one line in the log and one event in the trace.

#include <cstdint>

#include "format/base/log.h"
#include "format/model/event_sink.h"

namespace convtrace::cupti {

inline void report(format::EventSink& sink, uint32_t step, format::Level level, const char* site,
                   const char* message) noexcept {
  log_line(level, site, "%s", message);
  format::Diagnostic diagnostic;
  diagnostic.header.step = step;
  diagnostic.level = level;
  diagnostic.site = site;
  diagnostic.message = message;
  sink.emit(diagnostic);
}

}  // namespace convtrace::cupti

#pragma once
/// @file tiny_trace.h
/// The content of v1/tiny.ctrace, whose bytes format/FORMAT.md explains one by one.

#include "tests/support/trace_builder.h"

namespace convtrace::test {

inline void write_tiny_trace(const std::string& path) {
  format::TraceMeta meta;
  for (uint8_t i = 0; i < meta.uuid.size(); ++i) meta.uuid[i] = static_cast<uint8_t>(0xA0 + i);
  meta.start_realtime_ns = 1'700'000'000'000'000'000;
  meta.start_monotonic_ns = 1'000'000;
  meta.tool_version = "0.1.0";
  meta.host = "h";
  meta.pid = 42;
  meta.command_line = {"train"};
  TraceBuilder(path)
      .meta(meta)
      .step(3)
      .diagnostic(format::Level::kWarning, "golden", "hello")
      .enter("h.0.mlp")
      .close();
}

}  // namespace convtrace::test

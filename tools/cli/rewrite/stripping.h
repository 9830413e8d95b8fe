#pragma once
/// @file stripping.h
/// Copies a trace without what one would not show a stranger: raw and stored values, stacks, the
/// command line, host and process, and whatever names a path. What the diff goes by stays: hashes,
/// statistics, shapes, names of modules and kernels, versions and switches.
///
/// Place:    strip.cpp.
/// Threads:  one owner thread.

#include <memory>

#include "format/file/sink.h"
#include "reader/trace_reader.h"

namespace convtrace::tools {

struct Stripped {
  uint64_t events = 0;
  uint64_t bytes = 0;        ///< of the new trace
  uint64_t values = 0;       ///< tensors whose raw elements are left out
  uint64_t stacks = 0;       ///< call stacks left out
  uint64_t diagnostics = 0;  ///< messages left out
  uint64_t locations = 0;    ///< facts left out that name a file
};

/// @param trace        at its first event; read to its end.
/// @param hashes_only  statistics are left out, too.
/// @return kNoSpace, kIoError, kOutOfMemory of the new trace.
[[nodiscard]] Result<Stripped> strip(reader::TraceReader& trace, std::unique_ptr<format::Sink> sink,
                                     bool hashes_only);

}  // namespace convtrace::tools

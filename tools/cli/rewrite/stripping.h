#pragma once
/// @file stripping.h
/// Copies a trace without the contents that should not be given to others: raw and stored values,
/// stacks, the command line, host and process, and everything that names a path. Everything that
/// the diff needs is kept: hashes, statistics, shapes, names of modules and kernels, versions and
/// switches.
///
/// Place:    used by strip.cpp.
/// Threads:  one owner thread.

#include <memory>

#include "format/file/sink.h"
#include "reader/trace_reader.h"

namespace convtrace::tools {

struct Stripped {
  uint64_t events = 0;
  uint64_t bytes = 0;        ///< size of the new trace
  uint64_t values = 0;       ///< tensors whose raw elements are left out
  uint64_t stacks = 0;       ///< call stacks left out
  uint64_t diagnostics = 0;  ///< messages left out
  uint64_t locations = 0;    ///< facts with a file name that were left out
};

/// @param trace        at its first event; read to its end.
/// @param hashes_only  statistics are left out, too.
/// @return kNoSpace, kIoError, kOutOfMemory of the new trace.
[[nodiscard]] Result<Stripped> strip(reader::TraceReader& trace, std::unique_ptr<format::Sink> sink,
                                     bool hashes_only);

}  // namespace convtrace::tools

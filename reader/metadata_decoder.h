#pragma once
/// @file metadata_decoder.h
/// Payloads of META and DEFS records, verified.
///
/// Place:    trace_reader.cpp; format/metadata_encoder.h is its mirror.
/// Errors:   kCorrupt, kLimitExceeded; what was decoded before a bad definition stays.
/// Source:   format/FORMAT.md sections 4 and 5.

#include "format/base/bytes.h"
#include "format/base/status.h"
#include "format/definitions.h"
#include "format/meta.h"

namespace convtrace::reader {

/// Adds what a META payload says to `meta`: later values of a fact win.
/// @param required_features  out: as the file header states them.
[[nodiscard]] Status decode_meta(Bytes raw, format::TraceMeta& meta, uint32_t& required_features);

[[nodiscard]] Status decode_defs(Bytes raw, format::Definitions& definitions);

}  // namespace convtrace::reader

#pragma once
/// @file metadata_decoder.h
/// Payloads of META, DEFS and SUMS records, verified.
///
/// Place:    trace_reader.cpp; format/file/metadata_encoder.h is its mirror.
/// Errors:   kCorrupt, kLimitExceeded; what was decoded before a bad definition stays.
/// Source:   format/FORMAT.md sections 4, 5 and 6.7.

#include <vector>

#include "format/base/bytes.h"
#include "format/base/status.h"
#include "format/file/columns/step_sums.h"
#include "format/model/definitions.h"
#include "format/model/meta.h"

namespace convtrace::reader {

/// Adds what a META payload says to `meta`: later values of a fact win.
[[nodiscard]] Status decode_meta(Bytes raw, format::TraceMeta& meta);

[[nodiscard]] Status decode_defs(Bytes raw, format::Definitions& definitions);

/// @param events  out: of all kinds in the EVENTS records that are summed up.
[[nodiscard]] Status decode_sums(Bytes raw, std::vector<format::StepSums>& sums, uint64_t& events);

}  // namespace convtrace::reader
